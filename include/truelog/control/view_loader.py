"""Assembly: views as their files have them now, and the code that they come to.

A view that cannot be compiled takes nobody along: it has a reason in the place of its fingerprint. Whoever works on
views loads them here, streams and batch jobs alike.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from truelog.control import application
from truelog.control.application import ARCHIVE, hash_lines
from truelog.log import records
from truelog.log.records import EventTypes
from truelog.support.settings import Settings
from truelog.views import catalogue
from truelog.views.compiled_view import Compiled, compile_view


@dataclass(frozen=True)
class LoadedViews:
    """Some views: compiled, or refused with the reason."""

    compiled: list[Compiled] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    code: str = ""


def load_views(spark: SparkSession, settings: Settings, types: EventTypes, views: Iterable[str]) -> LoadedViews:
    """Load and compile these views, each by itself."""
    schemas = {topic: records.schema(each) for topic, each in types.items()}
    compiled: list[Compiled] = []
    refused: dict[str, str] = {}
    for name in views:
        try:
            view = catalogue.load_view(name, settings.views_folder)
            compiled.append(compile_view(spark, name, view, schemas))
        except Exception as error:  # whatever a file may raise when it is imported
            refused[name] = f"{type(error).__name__}: {error}"
    parts = [f"{each.name} {each.view.version} {each.fingerprint}" for each in compiled]
    parts += [f"{name} {_file(settings, name)}" for name in refused]
    return LoadedViews(compiled, refused, hash_lines(sorted(parts)))


def archive_code(types: EventTypes) -> str:
    """The archive's code: the columns that it gives to each topic."""
    return hash_lines(f"{name} {records.schema(each).json()}" for name, each in sorted(types.items()))


def application_codes(
    spark: SparkSession, settings: Settings, types: EventTypes, applications: Iterable[str]
) -> dict[str, str]:
    """The code that each application would run if it were started now."""
    return {
        name: archive_code(types)
        if name == ARCHIVE
        else load_views(spark, settings, types, application.views_of(settings, name)).code
        for name in applications
    }


def _file(settings: Settings, view: str) -> str:
    """A file that is mended is other code; so is one that comes."""
    path = settings.views_folder / f"{view}.py"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
