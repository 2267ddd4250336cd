"""What an explanation reads: all records of the view's topics below its positions. It is known without Spark."""

from collections.abc import Iterable

from truelog.apps.reader_positions import view_positions
from truelog.archive import reader as archive_reader
from truelog.archive.reader import ScanCost, Wanted
from truelog.archive.table import archived_positions, stores_answer
from truelog.log.positions import Positions
from truelog.storage import db_snapshot
from truelog.support.errors import NotMade
from truelog.support.settings import Settings
from truelog.views.view import View


def archived_end(settings: Settings, reads: Iterable[str], positions: Positions) -> tuple[Positions, int]:
    """How far the archive contains the events of these topics below the positions, and how many records it lacks."""
    wanted = positions.only(reads)
    archived = archived_positions(settings, wanted.offsets)
    archived.require_same_topics(wanted)
    end = wanted.earliest(archived)
    return end, end.records_to(wanted)


def explain_cost(settings: Settings, name: str, view: View) -> ScanCost:
    """The cost of explaining any row of the view's deployed version.

    Raises:
        NotMade: the view has no table.
        ArchiveBehind: no record of a topic is archived yet.
        CatalogBehind: the database was restored from a backup. Run `truelog archive adopt` first.
        TopicRecreated: the archive contains another topic with this name.
        ServiceDown: the database, the catalog or the object store does not answer.
    """
    with db_snapshot.read_snapshot(settings) as connection:
        deployed = view_positions(connection, [name])[name]
    if not deployed.version:
        raise NotMade("the view has no table yet, so it has no row to explain")
    with stores_answer():
        end, _ = archived_end(settings, view.reads, deployed.positions)
        return archive_reader.scan_cost(settings, Wanted.between(Positions(), end))
