"""Fetching the jars of `ivy.xml`, by the Ivy that PySpark brings: no Maven and no download script.

A stamp holds the hash of the `ivy.xml` that the folder was filled from, so fetching again costs nothing.
"""

import hashlib
import logging
import shutil
import subprocess
from pathlib import Path

from truelog.spark.java import java, pyspark_home
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings

log = logging.getLogger("truelog.runtime")

IVY_FILE = Path(__file__).with_name("ivy.xml")
STAMP = "ivy.sha256"


def fetch(settings: Settings) -> None:
    """Fill the home's folder, unless it holds what `ivy.xml` asks for; a shared one is others' to fill."""
    if settings.jars_folder is not None:
        return
    folder = settings.jars_home
    wanted = hashlib.sha256(IVY_FILE.read_bytes()).hexdigest()
    stamp = folder / STAMP
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    log.info("jars: fetching about 240 MB into %s; a minute or so", folder)
    fresh = folder.with_name(f"{folder.name}.fetching")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    _run_ivy(settings, fresh)
    (fresh / STAMP).write_text(wanted)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    log.info("jars: there")


def _run_ivy(settings: Settings, into: Path) -> None:
    # Some artifacts are packaged as `bundle`: without that word five jars are missing, and nobody says so.
    command = [java(settings), "-jar", str(_ivy_jar()), "-ivy", str(IVY_FILE), "-types", "jar", "bundle"]
    pattern = into / "[conf]" / "[artifact]-[revision](-[classifier]).[ext]"
    command += ["-confs", "spark", "kafka", "s3", "-retrieve", str(pattern)]
    record = into / "ivy.log"
    with record.open("wb") as out:
        ended = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False)
    if ended.returncode != 0:
        kept = into.with_name("ivy.log")
        record.replace(kept)
        raise NotSetUp(f"Ivy could not fetch the jars; {kept} says why. Is the network there?")


def _ivy_jar() -> Path:
    return next(pyspark_home().glob("jars/ivy-*.jar"))
