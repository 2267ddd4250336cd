"""Views of one topic share its decoded events: each takes exactly its own records, and small files share tasks."""

import uuid

import pytest
from pyspark.sql import DataFrame

from tests.beds.archived import Archived
from tests.builders.erasures import an_erasure, forget_erasures
from truelog.archive.reader import Wanted, read_events
from truelog.batch import shared_events
from truelog.batch.shared_events import SharedEvents
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Step
from truelog.erasure.subject import Subject
from truelog.log.positions import Positions
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import COMPARE_ONLY, ReconcileRequest

FROM_RAW = ReconcileRequest(from_raw=True)


def ten_files(ground: Archived) -> None:
    """Ten files with twenty clicks each, two for each minute."""
    for number in range(5):
        for partition in (0, 1):
            ground.click(partition, [(f"u{each}", "1", 60 * number) for each in range(20)])


pytestmark = pytest.mark.ground(filled=ten_files)


def offsets(events: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in events.select("partition", "offset").collect())


@pytest.mark.parametrize("reached", [{0: 0, 1: 0}, {0: 60, 1: 33}, {0: 100, 1: 100}])
def test_shared_events_are_the_events_that_the_archive_has(ground: Archived, reached: dict[int, int]) -> None:
    """Whatever another view has caused to be decoded."""
    lab, click = ground.lab, ground.lab.types["click"]
    shared = SharedEvents(lab.spark, lab.settings, Positions({"click": reached}, ground.ids))
    for begin, end in (
        ({0: 0, 1: 0}, {0: 100, 1: 100}),
        ({0: 7, 1: 0}, {0: 59, 1: 34}),
        ({0: 60, 1: 33}, {0: 61, 1: 33}),
    ):
        wanted = Wanted.between(*(Positions({"click": each}, ground.ids) for each in (begin, end)))
        expected = [(p, o) for p in (0, 1) for o in range(begin[p], end[p])]
        assert offsets(shared.events(click, wanted)) == expected
    shared.release()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that are read from the archive to be shared."""
    names: list[str] = []

    def counted(*arguments: object, **named: object) -> DataFrame:
        names.append(arguments[2].name)  # type: ignore[attr-defined]
        return read_events(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(shared_events, "read_events", counted)
    return names


def test_each_topic_is_decoded_once(ground: Archived, read: list[str]) -> None:
    ground.stream()
    with shared_events.shared_events(ground.lab.spark, ground.lab.settings, [ground.positions]) as shared:
        for _ in range(2):
            assert reconcile(ground.lab.context, ground.compiled, FROM_RAW, shared).equal
        assert reconcile(ground.lab.context, ground.compiled, COMPARE_ONLY, shared).equal
    assert read.count("click") == 1


def test_events_from_before_an_erasure_are_not_used_after_it(ground: Archived, read: list[str]) -> None:
    """Or a view that is compared after it was erased would get the person back by a repair."""
    lab, click = ground.lab, ground.lab.types["click"]
    wanted = Wanted.between(Positions(), ground.positions.only(["click"]))
    shared = SharedEvents(lab.spark, lab.settings, ground.positions)
    for _ in range(2):
        shared.events(click, wanted)
    assert read.count("click") == 1
    erased = Erasure(uuid.uuid4(), frozenset({Subject.of(b"s", "visitor_id", "eve")}), {}, Positions())
    try:
        for number, step in enumerate((Step.COUNTED, Step.REWRITTEN), 2):
            forget_erasures(lab.connection)
            an_erasure(lab.connection, erased, step)
            shared.events(click, wanted)
            assert read.count("click") == number
    finally:
        forget_erasures(lab.connection)
        shared.release()


def test_a_topic_that_cannot_be_shared_is_read_by_each_view(ground: Archived, read: list[str]) -> None:
    """The furthest view reads another topic of this name, so its positions say nothing about these records."""
    ground.stream()
    other = Positions(ground.ends, dict.fromkeys(ground.ends, "another"))
    with shared_events.shared_events(ground.lab.spark, ground.lab.settings, [other]) as shared:
        for _ in range(2):
            assert reconcile(ground.lab.context, ground.compiled, FROM_RAW, shared).equal
    assert read.count("click") >= 2


def test_small_files_share_tasks(ground: Archived) -> None:
    wanted = Wanted.between(Positions(), ground.positions)
    for from_raw in (False, True):
        events = read_events(
            ground.lab.spark,
            ground.lab.settings,
            ground.lab.types["click"],
            wanted.of_topic("click"),
            from_raw=from_raw,
        )
        assert events.rdd.getNumPartitions() == 1
