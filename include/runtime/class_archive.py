"""The class archive: one file with the classes of Spark and of our jars.

Every JVM of Spark maps this file instead of loading and linking each class.

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


def make(settings: Settings, *, retry: bool = True) -> None:
    """Make the archive if it is missing. If there is no archive, Spark still works but starts more slowly.

    A failure leaves a file with the output of Java and Spark. Without `retry`, this file prevents another attempt.
    """
    archive = class_archive(settings)
    failure = archive.with_suffix(".log")
    if archive.is_file() or (failure.is_file() and not retry):
        return
    log.info("classes: archiving the classes that Spark loads; this takes about half a minute")
    with tempfile.TemporaryDirectory(dir=settings.jars_home) as folder:
        fresh = Path(folder) / "classes.jsa"
        ended = run(settings, fresh)
        if ended.returncode == 0 and fresh.is_file():
            fresh.rename(archive)
            failure.unlink(missing_ok=True)
            log.info("classes: done")
        else:
            failure.write_bytes(ended.stdout)
            log.warning("classes: no archive was made, so Spark will start more slowly; see %s", failure)


def run(settings: Settings, fresh: Path) -> "subprocess.CompletedProcess[bytes]":
    """Run Spark so that Java archives the classes in `fresh`.

    The platform's home does not exist yet, and Spark's sockets need a short path.
    """
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        conf = submit_conf(settings, scratch)
        conf["spark.driver.extraJavaOptions"] += f" -XX:ArchiveClassesAtExit={fresh}"
        options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        command = [str(pyspark_home() / "bin" / "spark-submit"), "--master", "local[2]", *options, warm_up.__file__]
        environment = job_environment(settings, scratch)
        return subprocess.run(
            command, cwd=scratch, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
