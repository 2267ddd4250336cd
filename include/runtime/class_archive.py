"""The class archive: one file with Spark's classes. Every JVM maps this file instead of loading and linking each class.

The archive halves the start time of a Spark process. Java writes the archive at the end of a run that loaded the
classes (JEP 350), and ignores an archive that was made by another Java version or for other jars.
"""

import logging
import subprocess
import tempfile
from pathlib import Path

from runtime import warm_up
from truelog.spark.java import class_archive, pyspark_home
from truelog.spark.submit import job_environment, submit_conf
from truelog.support.settings import Settings

log = logging.getLogger("truelog.runtime")


def make(settings: Settings) -> None:
    """Make the archive if it is missing. If there is no archive, Spark still works but starts more slowly."""
    archive = class_archive(settings)
    if archive.is_file():
        return
    log.info("classes: archiving the classes that Spark loads; this takes about half a minute")
    with tempfile.TemporaryDirectory(dir=settings.jars_home) as folder:
        fresh = Path(folder) / "classes.jsa"
        command, environment = _command(settings, fresh), job_environment(settings, Path(folder))
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
        if ended.returncode == 0 and fresh.is_file():
            fresh.rename(archive)
            log.info("classes: done")
        else:
            log.warning("classes: this Java version made no archive, so Spark will start more slowly")


def _command(settings: Settings, fresh: Path) -> list[str]:
    conf = submit_conf(settings, fresh.parent)
    conf["spark.driver.extraJavaOptions"] += f" -XX:ArchiveClassesAtExit={fresh}"
    options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    return [str(pyspark_home() / "bin" / "spark-submit"), "--master", "local[2]", *options, warm_up.__file__]
