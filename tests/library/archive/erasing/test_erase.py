"""Covered records lose everything but their coordinates, in every file of the bucket, on a real catalog and bucket."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from sqlalchemy import text

from tests.beds.archived import drop_archive
from tests.deadline import deadline
from tests.library.archive.erasing import eraser as eraser_process
from tests.library.archive_files import MORNING, TOPIC, TOPIC_ID, append_visits, erasures_of
from tests.scenes.applications import start
from truelog.archive.audit_evidence import file_faults
from truelog.archive.catalog_pointer import load_newest
from truelog.archive.commit import commit
from truelog.archive.erasing import erase
from truelog.archive.erasing.erase import ArchiveEraser
from truelog.archive.table import Progress, ensure_table, erased_counts, open_catalog
from truelog.erasure.ledger import CoveredDay
from truelog.schema.loading.events import load_events
from truelog.storage import bucket
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

PERSON, OTHER = "ann-4711-zz", "bob-0815-yy"
TYPE = load_events()[TOPIC]
END_TURN = """
    SELECT pg_terminate_backend(pid, 10000) FROM pg_locks
    WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted AND pid <> pg_backend_pid()
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.fixture
def catalog(platform: Settings) -> Iterator[Catalog]:
    with open_catalog(platform) as catalog:
        drop_archive(catalog, TOPIC)
        yield catalog


@pytest.fixture
def table(platform: Settings, catalog: Catalog) -> Table:
    """Three commits with two partitions; the last file of each does not name the person."""
    made = ensure_table(catalog, TYPE, TOPIC_ID, {0: 0, 1: 0})
    commit(catalog, append_visits(platform, made, {0: 0, 1: 0}, PERSON, OTHER, PERSON))
    commit(catalog, append_visits(platform, made, {0: 3, 1: 3}, OTHER, PERSON))
    commit(catalog, append_visits(platform, made, {0: 5, 1: 5}, OTHER))
    return made.refresh()


def eraser(settings: Settings, catalog: Catalog, end: int = 100, topic_id: str = TOPIC_ID) -> ArchiveEraser:
    return ArchiveEraser(catalog, TYPE, erasures_of(settings, PERSON, {0: end, 1: end}, topic_id))


def rows(table: Table) -> list[dict[str, Any]]:
    return sorted(table.refresh().scan().to_arrow().to_pylist(), key=lambda r: (r["partition"], r["offset"]))


def files(table: Table) -> set[str]:
    return {task.file.file_path for task in table.refresh().scan().plan_files()}


def objects_that_name(settings: Settings, table: Table, person: str) -> list[str]:
    """The objects of the table that contain the person: in a data file's decoded columns, or in any object's bytes."""
    client, found = bucket.s3_client(settings), []
    for address in bucket.object_sizes(settings, table.location()):
        place, key = address.removeprefix("s3://").split("/", 1)
        content = client.get_object(Bucket=place, Key=key)["Body"].read()
        if address.endswith(".parquet"):
            io = table.io
            assert isinstance(io, PyArrowFileIO)
            with io.fs_by_scheme("s3", place).open_input_file(f"{place}/{key}") as opened:
                content += str(pq.read_table(opened).to_pylist()).encode()
        if person.encode() in content:
            found.append(address)
    return found


def require_erased(settings: Settings, table: Table, below: int) -> None:
    """Every record is there once, and exactly the person's records below the end are erased."""
    visitors = [PERSON, OTHER, PERSON, OTHER, PERSON, OTHER]
    for row in rows(table):
        empty = {name for name, value in row.items() if value in (None, [])}  # pyiceberg writes no NULL list
        is_covered = visitors[row["offset"]] == PERSON and row["offset"] < below
        assert row["erased"] is is_covered
        if is_covered:
            assert row.keys() - empty == {"partition", "offset", "broker_time", "erased", "log_day"}
        else:
            assert (row["visitor_id"], row["key"]) == (visitors[row["offset"]], visitors[row["offset"]].encode())
            assert row["headers"] == [{"key": "who", "value": visitors[row["offset"]].encode()}]
    assert [(r["partition"], r["offset"]) for r in rows(table)] == [(p, o) for p in (0, 1) for o in range(6)]
    assert file_faults(table, bucket.object_sizes(settings, f"{table.location()}/data/")) == []
    load_newest(table.catalog, ".".join(table.name()))


def test_covered_records_keep_only_their_coordinates(platform: Settings, catalog: Catalog, table: Table) -> None:
    before, progress = files(table), Progress.of(table.metadata)
    assert eraser(platform, catalog).rewrite() == 6
    require_erased(platform, table, below=6)
    assert Progress.of(table.metadata) == progress
    assert erased_counts(table) == {0: 3, 1: 3}
    assert len(before & files(table)) == 2  # the files without the person stay as they are


def test_an_adopted_erasure_counts_erased_records_below_its_ends(
    platform: Settings, catalog: Catalog, table: Table
) -> None:
    before = eraser(platform, catalog, end=4).count()
    assert [(each.partition, each.records) for each in before] == [(0, 2), (1, 2)]
    eraser(platform, catalog).rewrite()
    assert eraser(platform, catalog, end=4).count() == []
    assert eraser(platform, catalog, end=4).count(with_erased=True) == before
    assert eraser(platform, catalog, topic_id="an-earlier-life").count(with_erased=True) == []


def test_records_at_or_after_the_end_stay(platform: Settings, catalog: Catalog, table: Table) -> None:
    assert eraser(platform, catalog, end=4).rewrite() == 4
    require_erased(platform, table, below=4)
    assert eraser(platform, catalog, end=5).rewrite() == 2
    require_erased(platform, table, below=5)
    assert erased_counts(table) == {0: 3, 1: 3}


def test_records_of_a_topic_that_was_created_again_stay(platform: Settings, catalog: Catalog, table: Table) -> None:
    assert eraser(platform, catalog, topic_id="another-life").rewrite() == 0
    require_erased(platform, table, below=0)


def test_an_erasure_that_is_repeated_changes_nothing(platform: Settings, catalog: Catalog, table: Table) -> None:
    eraser(platform, catalog).rewrite()
    eraser(platform, catalog).expire()
    location = table.refresh().metadata_location
    assert eraser(platform, catalog).count() == []
    assert eraser(platform, catalog).rewrite() == 0
    assert eraser(platform, catalog).expire() == 0
    assert table.refresh().metadata_location == location


def test_covered_records_are_counted_by_log_day(platform: Settings, catalog: Catalog, table: Table) -> None:
    assert eraser(platform, catalog).count() == [CoveredDay(TOPIC, p, MORNING, 3) for p in (0, 1)]
    drop_archive(catalog, TOPIC)
    assert eraser(platform, catalog).count() == []
    assert (eraser(platform, catalog).rewrite(), eraser(platform, catalog).expire()) == (0, 0)


def test_no_object_of_the_bucket_names_the_person_afterwards(
    platform: Settings, catalog: Catalog, table: Table
) -> None:
    eraser(platform, catalog).rewrite()
    assert len(objects_that_name(platform, table, PERSON)) == 4  # earlier snapshots have them
    assert eraser(platform, catalog).expire() == 4
    assert objects_that_name(platform, table, PERSON) == []
    assert len(objects_that_name(platform, table, OTHER)) == 6
    assert len(table.refresh().snapshots()) == 1
    require_erased(platform, table, below=6)
    commit(catalog, append_visits(platform, table, {0: 6, 1: 6}, OTHER))  # the archive application goes on
    assert len(rows(table)) == 14


def test_a_file_from_before_a_column_is_erased_too(platform: Settings, catalog: Catalog, table: Table) -> None:
    with table.update_schema() as update:
        update.delete_column("language")
    ensure_table(catalog, TYPE, TOPIC_ID, {})
    eraser(platform, catalog).rewrite()
    require_erased(platform, table, below=6)


def test_an_append_in_between_is_kept(
    platform: Settings, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_between(monkeypatch, lambda: commit(catalog, append_visits(platform, table, {0: 6, 1: 6}, OTHER)))
    assert eraser(platform, catalog).rewrite() == 6
    assert [row["offset"] for row in rows(table) if row["erased"]] == [0, 2, 4] * 2
    assert len(rows(table)) == 14
    assert Progress.of(table.metadata).positions == {0: 7, 1: 7}


def test_appends_wait_for_an_erasure_that_they_have_overtaken(
    platform: Settings, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each append begins between the plan and the commit, as those of a busy archive do."""
    appends: list[Future[Table]] = []

    def add() -> None:
        at = Progress.of(table.refresh().metadata).positions
        appends.append(pool.submit(commit, catalog, append_visits(platform, table, at, OTHER)))
        if len(appends) == 1:  # the first attempt has not the turn
            appends[0].result(deadline(60))

    monkeypatch.setattr(erase, "_ATTEMPTS", 2)
    with ThreadPoolExecutor() as pool:
        in_between(monkeypatch, add, add)
        assert eraser(platform, catalog).rewrite() == 6
        assert [each.result(deadline(60)) is not None for each in appends] == [True, True]
    assert [row["offset"] for row in rows(table) if row["erased"]] == [0, 2, 4] * 2
    assert Progress.of(table.refresh().metadata).positions == {0: 8, 1: 8}


@pytest.mark.parametrize("overtaken", [False, True])
def test_an_erasure_outlasts_the_loss_of_its_turn(
    platform: Settings, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch, overtaken: bool
) -> None:
    def add() -> None:
        at = Progress.of(table.refresh().metadata).positions
        commit(catalog, append_visits(platform, table, at, OTHER))

    def lose() -> None:
        with cast(SqlCatalog, catalog).engine.connect() as connection:
            ended = connection.execute(text(END_TURN)).scalars()
            assert [*ended] == [True]
        if overtaken:
            add()

    in_between(monkeypatch, add, lose)
    assert eraser(platform, catalog).rewrite() == 6
    assert [row["offset"] for row in rows(table) if row["erased"]] == [0, 2, 4] * 2
    load_newest(catalog, ".".join(table.name()))


def test_a_file_that_was_replaced_in_between_is_examined_again(
    platform: Settings, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other erasure replaces files of this one's plan, as a compaction would."""
    other = erasures_of(platform, OTHER, {0: 2, 1: 2})
    in_between(monkeypatch, lambda: ArchiveEraser(catalog, TYPE, other).rewrite())
    assert eraser(platform, catalog).rewrite() == 6
    assert [row["offset"] for row in rows(table) if row["erased"]] == [0, 1, 2, 4] * 2
    assert len(rows(table)) == 12
    assert erased_counts(table) == {0: 4, 1: 4}


def test_files_that_are_always_replaced_first_end_the_attempt(
    platform: Settings, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase, "_ATTEMPTS", 2)
    others = [erasures_of(platform, OTHER, {0: end, 1: end}) for end in (2, 4)]
    in_between(monkeypatch, *(ArchiveEraser(catalog, TYPE, each).rewrite for each in others))
    with pytest.raises(ServiceDown, match="Nothing was changed"):
        eraser(platform, catalog).rewrite()
    assert [row["offset"] for row in rows(table) if row["erased"]] == [1, 3] * 2


def in_between(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], object]) -> None:
    """Let another process commit, each time between the plan and the commit of the copies."""
    replace, left = erase._replace, list(acts)

    def replacing(table: Table, *arguments: Any) -> None:
        if left:
            with monkeypatch.context() as other_process:
                other_process.setattr(erase, "_replace", replace)
                left.pop(0)()
        replace(table, *arguments)

    monkeypatch.setattr(erase, "_replace", replacing)


@pytest.mark.parametrize("point", ["erase.written", "erase.committed", "erase.deleted"])
def test_an_erasure_that_was_killed_is_finished_by_its_repetition(
    platform: Settings, catalog: Catalog, table: Table, point: str
) -> None:
    [wanted] = erasures_of(platform, PERSON, {0: 100, 1: 100}).all
    killed = start(platform, str(Path(eraser_process.__file__)), TOPIC, wanted.as_text(), fault=f"{point}:1:kill")
    killed.wait_kill()
    assert eraser(platform, catalog).rewrite() == (6 if point == "erase.written" else 0)
    eraser(platform, catalog).expire()
    require_erased(platform, table, below=6)
    assert objects_that_name(platform, table, PERSON) == []
