"""View loader: compiles views from their files and identifies an application's code.

Streams and batch jobs load their views here. A view that cannot be compiled is refused with a reason and does not
affect the other views.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from truelog.control import application
from truelog.control.application import ARCHIVE, hash_lines
from truelog.control.view_versions import StoredVersion
from truelog.log import records
from truelog.schema import declaration_files
from truelog.schema.event import EventTypes
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView
from truelog.tables.compiler import compile_view
from truelog.tables.fingerprint import Schemas
from truelog.views import catalogue
from truelog.views.view import View


@dataclass(frozen=True)
class LoadedViews:
    """The compiled views, the refused views with their reasons, and the hash of all their code.

    sources: the contents of the files of compiled views. A file that changed while it was loaded is left out.
    """

    compiled: list[CompiledView] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    code: str = ""
    sources: dict[str, str] = field(default_factory=dict)


def load_views(spark: SparkSession, settings: Settings, types: EventTypes, views: Iterable[str]) -> LoadedViews:
    """Load and compile these views, independently of each other. As many are compiled at once as Spark has cores.

    The files are loaded one after the other, because what they print is redirected for the whole process.
    """
    declared: dict[str, View] = {}
    refused: dict[str, str] = {}
    sources: dict[str, str] = {}
    for name in views:
        file = settings.views_folder / f"{name}.py"
        try:
            before = declaration_files.digest(file)
            declared[name], source = catalogue.load_view(name, settings.views_folder), declaration_files.content(file)
            if declaration_files.digest(file) == before:
                sources[name] = source.decode()
        except (Exception, SystemExit) as error:  # a file may raise anything when it is imported
            refused[name] = _reason(error)
    compiled, uncompiled = _compile_all(spark, types, declared)
    refused |= uncompiled
    topics = {topic for each in compiled for topic in each.view.topics}
    parts = [f"{each.name} {each.view.version} {each.fingerprint}" for each in compiled]
    # A fixed or new file counts as new code.
    parts += [f"{name} {declaration_files.digest(settings.views_folder / f'{name}.py')}" for name in refused]
    parts += _versions(types, topics)
    return LoadedViews(compiled, refused, hash_lines(sorted(parts)), sources)


def load_compiled(spark: SparkSession, types: EventTypes, name: str, folder: Path) -> CompiledView:
    """Load and compile the view in a file of the folder. A file may raise anything when it is imported."""
    return _compiled(spark, types, _schemas(types), name, catalogue.load_view(name, folder))


def _compile_all(
    spark: SparkSession, types: EventTypes, declared: Mapping[str, View]
) -> tuple[list[CompiledView], dict[str, str]]:
    """The views that could be compiled, in their order, and why the others could not."""
    compiled: list[CompiledView] = []
    refused: dict[str, str] = {}
    compile_one = partial(_compiled, spark, types, _schemas(types))
    with ThreadPoolExecutor(spark.sparkContext.defaultParallelism, thread_name_prefix="compile") as pool:
        futures = {name: pool.submit(compile_one, name, view) for name, view in declared.items()}
    for name, future in futures.items():
        try:
            compiled.append(future.result())
        except (Exception, SystemExit) as error:  # a transform may raise anything
            refused[name] = _reason(error)
    return compiled, refused


def _compiled(spark: SparkSession, types: EventTypes, schemas: Schemas, name: str, view: View) -> CompiledView:
    _require_keyed(name, view, types)
    return compile_view(spark, name, view, schemas)


def _schemas(types: EventTypes) -> Schemas:
    return {topic: records.schema(types[topic]) for topic in types}


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def load_stored(
    spark: SparkSession, settings: Settings, types: EventTypes, versions: Iterable[StoredVersion]
) -> tuple[list[CompiledView], dict[StoredVersion, str]]:
    """Load and compile versions from the files that the database has kept. Also the reason for each that is refused."""
    compiled: list[CompiledView] = []
    refused: dict[StoredVersion, str] = {}
    for each in versions:
        if each.source is None:
            refused[each] = f"The file that declares version {each.version} was not kept, so the version is at rest."
            continue
        try:
            compiled.append(load_compiled(spark, types, each.view, each.write(settings)))
        except (Exception, SystemExit) as error:
            refused[each] = _reason(error)
    return compiled, refused


def _require_keyed(name: str, view: View, types: EventTypes) -> None:
    """Refuse a topic without a key for a view that depends on earlier events: they may be in other partitions.

    If the view says which of its columns must contain the key, they must.
    """
    for topic in types.keys() & {*view.reads} if view.is_stateful else ():
        key = types[topic].topic.key
        if key is None:
            raise BadDeclaration(f"{name} depends on the order of the events of {topic}, whose topic has no key.")
        if view.partition_columns is not None and key not in view.partition_columns:
            raise BadDeclaration(f"{name} has steps, so `by` must contain {key}, the key of {topic}.")


def archive_code(types: EventTypes) -> str:
    """The hash of the archive's code: the versions of the event types, which say what it stores for each topic."""
    return hash_lines(_versions(types, types))


def application_codes(
    spark: SparkSession, settings: Settings, types: EventTypes, applications: Iterable[str]
) -> dict[str, str]:
    """The hash of the code that each application would run if it started now."""
    return {
        name: archive_code(types)
        if name == ARCHIVE
        else load_views(spark, settings, types, application.views_of(settings, name)).code
        for name in applications
    }


def _versions(types: EventTypes, topics: Iterable[str]) -> list[str]:
    """The topics with the readings and versions by which a process decodes their records."""
    return [f"{name} {types[name].topic_id} {types[name].reading}.{types[name].version}" for name in sorted(topics)]
