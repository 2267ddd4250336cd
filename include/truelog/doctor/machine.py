"""This machine: Java, jars, disk, memory, and who can read the secrets."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

from truelog.doctor.result import Area, Result
from truelog.spark.java import RELEASES, installed_java
from truelog.support.errors import NotSetUp
from truelog.support.settings import ENVIRONMENT_FILE, Settings

_LEAST_MEMORY = 6e9  # bytes; what `make demo` needs
_JARS = ("spark", "kafka", "s3")


def _checks(area: Area, settings: Settings) -> Iterator[Result]:
    yield _java(area)
    yield _jars(area, settings)
    yield _disk(area, settings)
    yield _memory(area)
    yield _secrets(area, settings.home / ENVIRONMENT_FILE)


def _java(area: Area) -> Result:
    try:
        return area.fine("Java", str(installed_java()))
    except ImportError:
        wanted = " or ".join(map(str, RELEASES))
        return area.failed("Java", f"there is no Java {wanted}", "Run `make install`, or set JAVA_HOME.")


def _jars(area: Area, settings: Settings) -> Result:
    try:
        return area.fine("jars", f"{sum(len(settings.jars(kind)) for kind in _JARS)} in {settings.jars_home}")
    except NotSetUp as error:
        return area.failed("jars", str(error), "Run `make install`.")


def _disk(area: Area, settings: Settings) -> Result:
    place = next(each for each in (settings.home, *settings.home.parents) if each.exists())
    usage = shutil.disk_usage(place)
    share, found = usage.free / usage.total, f"{usage.free / 1e9:,.0f} GB are free in {place}"
    if share >= settings.alert_disk_share:
        return area.fine("disk", found)
    cure = "Free space, or move the home: checkpoints, logs and the embedded services write there."
    return area.warning("disk", f"{found}, which is {share:.1%}", cure)


def _memory(area: Area) -> Result:
    total = psutil.virtual_memory().total
    found = f"{total / 1e9:,.0f} GB"
    if total >= _LEAST_MEMORY:
        return area.fine("memory", found)
    return area.warning("memory", found, "Run fewer services here. docs/production.md has the sizes.")


def _secrets(area: Area, file: Path) -> Result:
    if not file.exists():
        return area.fine("secrets", f"there is no {file}; the environment has the settings")
    if file.stat().st_mode & 0o077:
        return area.failed(
            "secrets", f"other users can read {file}", f"Run `chmod 600 {file}`, and change the secrets."
        )
    return area.fine("secrets", f"only its owner can read {file}")


MACHINE = Area("machine", _checks)
