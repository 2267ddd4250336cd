"""Class archive: the classes of Spark, mapped by each of its JVMs instead of being read, checked and linked anew.

Half of a Spark process's start goes there. Java makes the archive itself, at the end of a run that loaded the classes
(JEP 350), and passes over one that was made for another Java or for other jars.
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
    """Make the archive, unless it is there; without it everything works, and starts more slowly."""
    archive = class_archive(settings)
    if archive.is_file():
        return
    log.info("classes: archiving those of Spark's start; half a minute or so")
    with tempfile.TemporaryDirectory(dir=settings.jars_home) as folder:
        fresh = Path(folder) / "classes.jsa"
        command, environment = _command(settings, fresh), job_environment(settings)
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
        if ended.returncode == 0 and fresh.is_file():
            fresh.rename(archive)
            log.info("classes: there")
        else:
            log.warning("classes: this Java made no archive of them; Spark starts without one")


def _command(settings: Settings, fresh: Path) -> list[str]:
    conf = submit_conf(settings)
    conf["spark.driver.extraJavaOptions"] += f" -XX:ArchiveClassesAtExit={fresh}"
    options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    return [str(pyspark_home() / "bin" / "spark-submit"), "--master", "local[2]", *options, warm_up.__file__]
