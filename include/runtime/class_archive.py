"""The class archive: one file with the classes of Spark and of our jars.

Every JVM of Spark maps this file instead of loading and linking each class.

The archive halves the start time of a Spark process. Java writes the archive at the end of a run that loaded the
classes (JEP 350). It builds on an archive of Java's own classes, which most installations of Java contain. For the
others, this makes both.

Java silently starts without an archive that it cannot map. An archive is therefore kept only if Java maps it.
"""

import logging
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from runtime import warm_up
from truelog.spark.class_archive import base_archive, class_archive, class_path
from truelog.spark.java import java, pyspark_home
from truelog.spark.submit import job_environment, submit_conf
from truelog.support.settings import Settings

Writer = Callable[[Settings, Path], "subprocess.CompletedProcess[bytes]"]

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
    for missing, write in _missing(settings):
        ended = _complete(settings, missing, write)
        if not missing.is_file():
            failure.write_bytes(ended.stdout)
            log.warning("classes: no archive was made, so Spark will start more slowly; see %s", failure)
            return
    failure.unlink(missing_ok=True)
    log.info("classes: done")


def _missing(settings: Settings) -> Iterator[tuple[Path, Writer]]:
    """The archives to make, in this order, each with the run that writes it."""
    base = base_archive(settings)
    if base is not None and not base.is_file():
        yield base, _dump
    yield class_archive(settings), run


def _complete(settings: Settings, archive: Path, write: Writer) -> "subprocess.CompletedProcess[bytes]":
    """Let Java write the archive under another name, so that no process maps an incomplete or unusable file."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        fresh = Path(folder) / archive.name
        ended = write(settings, fresh)
        if ended.returncode == 0:
            mapped = f"-XX:SharedArchiveFile={fresh}"
            ended = _java(settings, "-Xshare:on", mapped, "-cp", class_path(settings), "-version")
        if ended.returncode == 0:
            fresh.rename(archive)
    return ended


def _dump(settings: Settings, fresh: Path) -> "subprocess.CompletedProcess[bytes]":
    """Let Java archive its own classes, those in the list that comes with it."""
    return _java(settings, "-Xshare:dump", f"-XX:SharedArchiveFile={fresh}")


def _java(settings: Settings, *options: str) -> "subprocess.CompletedProcess[bytes]":
    """Run Java. With `-Xshare:on`, it fails if it cannot map its archive."""
    command = [java(settings), *options]
    return subprocess.run(command, env={}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


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
