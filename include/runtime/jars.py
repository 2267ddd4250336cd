"""Fetches the jars in `ivy.xml` with the Ivy version that PySpark contains, so that Maven is not needed.

A stamp file contains the hash of the `ivy.xml` that the jars came from. If the hash matches, nothing is fetched.
"""

import hashlib
import logging
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from truelog.spark.java import java, pyspark_home
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings

log = logging.getLogger("truelog.runtime")

IVY_FILE = Path(__file__).with_name("ivy.xml")
STAMP = "ivy.sha256"


def fetch(settings: Settings) -> None:
    """Fill the home's jars folder unless it is up to date. A shared folder is never filled."""
    if settings.jars_folder is not None:
        return
    folder = settings.jars_home
    wanted = hashlib.sha256(IVY_FILE.read_bytes()).hexdigest()
    stamp = folder / STAMP
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    log.info("jars: fetching about 280 MB into %s; this takes about a minute", folder)
    fresh = folder.with_name(f"{folder.name}.fetching")
    shutil.rmtree(fresh, ignore_errors=True)
    run_ivy(settings, IVY_FILE, ("spark", "kafka", "s3", "connect"), fresh)
    (fresh / STAMP).write_text(wanted)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    log.info("jars: done")


def run_ivy(settings: Settings, file: Path, names: Sequence[str], into: Path) -> None:
    """Fetch the jars of these configurations of an Ivy file, each into a folder of its own."""
    # Some artifacts have the `bundle` packaging. If this type is not listed, Ivy silently leaves out five jars.
    command = [java(settings), "-jar", str(_ivy_jar()), "-ivy", str(file), "-types", "jar", "bundle"]
    pattern = into / "[conf]" / "[artifact]-[revision](-[classifier]).[ext]"
    command += ["-confs", *names, "-retrieve", str(pattern)]
    into.mkdir(parents=True, exist_ok=True)
    record = into / "ivy.log"
    with record.open("wb") as out:
        ended = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False)
    if ended.returncode != 0:
        kept = into.with_name("ivy.log")
        record.replace(kept)
        raise NotSetUp(f"Ivy could not fetch the jars; see {kept}. Is the network reachable?")


def _ivy_jar() -> Path:
    return next(pyspark_home().glob("jars/ivy-*.jar"))
