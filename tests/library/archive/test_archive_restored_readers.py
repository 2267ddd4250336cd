"""No reader shows an earlier version of the archive: it names people who were forgotten since the backup."""

from collections.abc import Callable, Mapping

import pytest

from tests.builders.event_types import an_event_type
from tests.command import answer, truelog
from tests.library import archive_readers
from tests.library.archive_files import OF_TWO_DAYS, TOPIC, TOPIC_ID, archive_values, erasures_of
from tests.library.restored_catalog import restored
from truelog.archive import reader
from truelog.archive.audit_evidence import incomplete_ranges
from truelog.archive.erasing.erase import ArchiveEraser
from truelog.archive.reader import Wanted
from truelog.archive.table import identifier, open_catalog
from truelog.batch.run_interval import RunInterval
from truelog.cli.output import Exit
from truelog.log.positions import Positions
from truelog.measures.registry import sql_functions
from truelog.quality.quality_metrics import measure_days
from truelog.schema.loading.events import load_events
from truelog.storage.database import connect
from truelog.storage.migration import migrate
from truelog.support.errors import CatalogBehind
from truelog.support.settings import Settings

ENDS = Positions({TOPIC: {0: len(OF_TWO_DAYS)}}, {TOPIC: TOPIC_ID})
QUERY = f"SELECT visitor_id FROM {TOPIC}"


def quality(settings: Settings) -> None:
    measure_days(settings, [load_events()[TOPIC]], RunInterval(*archive_readers.MARCH))


def preview_of_an_erasure(settings: Settings) -> None:
    with open_catalog(settings) as catalog:
        ArchiveEraser(catalog, load_events()[TOPIC], erasures_of(settings, "v", {0: 9})).count()


# These know the id of the topic, so they also refuse a catalog that has no table of it.
OF_A_TOPIC: dict[str, Callable[[Settings], object]] = {
    **archive_readers.READERS,
    "cost of an explanation": lambda it: reader.scan_cost(it, Wanted.between(Positions(), ENDS)),
    "faults of files": lambda it: incomplete_ranges(it, [TOPIC]),
    "floor of a comparison": lambda it: reader.holds_event(it, TOPIC, ENDS),
}
OF_A_NAME: dict[str, Callable[[Settings], object]] = {
    "quality": quality,
    "preview of an erasure": preview_of_an_erasure,
}
READERS = OF_A_TOPIC | OF_A_NAME


@pytest.fixture(scope="module")
def registered(postgresql: Settings, s3: Settings) -> Settings:
    migrate(postgresql, sql_functions())
    with connect(postgresql, autocommit=True) as connection:
        an_event_type(connection, load_events()[TOPIC], TOPIC_ID)
    return postgresql


@pytest.fixture
def archive(registered: Settings) -> Settings:
    archive_values(registered, OF_TWO_DAYS)
    return registered


def forget_and_restore(settings: Settings) -> None:
    """Forget a visitor, and restore the catalog to its state before."""
    with restored(settings), open_catalog(settings) as catalog:
        assert ArchiveEraser(catalog, load_events()[TOPIC], erasures_of(settings, "v", {0: 9})).rewrite() == 2


def not_refused(settings: Settings, readers: Mapping[str, Callable[[Settings], object]]) -> list[str]:
    """The readers that do not ask for `truelog archive adopt`."""
    found = []
    for name, read in readers.items():
        try:
            read(settings)
            found.append(name)
        except CatalogBehind as refused:
            if "truelog archive adopt" not in str(refused):
                found.append(f"{name}: {refused}")
    return found


def test_a_forgotten_person_is_not_read(archive: Settings) -> None:
    assert not_refused(archive, READERS) == [*READERS]
    forget_and_restore(archive)
    assert not_refused(archive, READERS) == []


def test_a_topic_that_the_catalog_has_lost_is_not_empty(archive: Settings) -> None:
    with open_catalog(archive) as catalog:
        catalog.drop_table(identifier(TOPIC))
    assert not_refused(archive, OF_A_TOPIC) == []


def test_the_command_names_the_cure(archive: Settings) -> None:
    assert {"visitor_id": "v"} in answer("sql", QUERY)["rows"]
    forget_and_restore(archive)
    refused = truelog("sql", QUERY)
    assert (refused.returncode, refused.stdout) == (Exit.UNKNOWN, "")
    assert "run `truelog archive adopt`" in refused.stderr
    answer("archive", "adopt", identifier(TOPIC))
    assert answer("sql", QUERY)["rows"] == [{"visitor_id": None}] * len(OF_TWO_DAYS)
