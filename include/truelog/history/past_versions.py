"""The code of the versions whose past is asked for, from the views' files or from files that the database has kept."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from truelog.batch.batch_context import BatchContext, open_batch
from truelog.control import view_versions
from truelog.control.view_loader import load_stored
from truelog.storage.database import Connection, connect
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView

Version = tuple[str, int]  # of a view


@dataclass(frozen=True)
class LoadedVersions:
    """The compiled versions, and why there is no code of the others."""

    compiled: Mapping[Version, CompiledView]
    refused: Mapping[Version, str]


def load(context: BatchContext, connection: Connection, versions: Collection[Version]) -> LoadedVersions:
    """Load these versions of views of the context."""
    compiled = {(each.name, each.view.version): each for each in context.views.compiled}
    refused = dict[Version, str]()
    if others := {*versions} - compiled.keys():
        kept = view_versions.stored(connection, others)
        loaded, broken = load_stored(context.spark, context.settings, context.event_types, kept)
        compiled |= {(each.name, each.view.version): each for each in loaded}
        refused = {each: _reason(context, *each) for each in others - compiled.keys()}
        refused |= {(each.view, each.version): reason for each, reason in broken.items()}
    return LoadedVersions(compiled, refused)


@contextmanager
def open_version(settings: Settings, name: str, view: str, version: int) -> Iterator[tuple[BatchContext, CompiledView]]:
    """A version of a view, in a Spark session that ends with the block.

    Raises:
        BadDeclaration: the version cannot be loaded.
    """
    with open_batch(settings, name, [view]) as context:
        with connect(settings) as connection:
            loaded = load(context, connection, [(view, version)])
        for reason in loaded.refused.values():
            raise BadDeclaration(reason)
        yield context, loaded.compiled[view, version]


def _reason(context: BatchContext, view: str, version: int) -> str:
    return context.views.refused.get(view, f"The code of version {version} of {view} is not kept.")
