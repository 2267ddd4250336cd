"""The plan of `accept-cut`: from where on the log is trusted, and which records and views it names."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Producer

from tests.builders.views import a_view, forget, merged_to
from tests.deadline import deadline
from truelog.archive.table import Progress
from truelog.control.log_cuts import OpenCut
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.maintenance import accept_cut
from truelog.maintenance.accept_cut import Plan
from truelog.storage.database import Connection
from truelog.support.settings import KafkaUser, Settings

OLD, NEW, CUT_AT = 1, 2, 5  # the epochs before and after the cut, and the offset at which the log was cut
Reader = tuple[int, int | None]  # its position, and the epoch in which it reached the position


@dataclass(frozen=True)
class Case:
    """Where each reader is, and the plan."""

    archive: Reader | None
    views: dict[str, Reader]
    plan: tuple[int, bool, int, tuple[str, ...]]  # trusted_from, moves, lost, views
    topic: str = "page_view"
    others: dict[str, Reader] = field(default_factory=dict)  # views that read another topic or partition


CASES = {
    "nothing is archived": Case(None, {"v": (10, OLD), "w": (8, OLD)}, (10, False, 5, ("v", "w"))),
    "no view is past the cut": Case(None, {"v": (5, OLD), "w": (9, NEW)}, (5, False, 0, ())),
    "the archive is at the cut": Case((5, OLD), {"v": (7, OLD)}, (7, False, 2, ("v",))),
    "the archive has gone on": Case((9, NEW), {"v": (6, OLD)}, (6, False, 1, ("v",))),
    "the archive is past the cut": Case((6, OLD), {"v": (6, OLD)}, (6, True, 0, ())),
    "the archive's epoch is unknown": Case((6, None), {"v": (2, OLD)}, (6, True, 0, ())),
    "a view is past the archive": Case((6, OLD), {"v": (8, OLD), "w": (6, OLD)}, (8, True, 2, ("v",))),
    "a view has gone on": Case((7, OLD), {"v": (6, OLD), "w": (9, NEW)}, (9, True, 0, ("w",))),
    "a view is at the cut": Case((7, OLD), {"w": (5, NEW)}, (7, True, 0, ())),
    "views elsewhere": Case((6, OLD), {}, (6, True, 0, ()), others={"o": (40, OLD)}),
    "a compacted topic": Case((6, OLD), {"v": (7, OLD)}, (12, True, 1, ("v",)), topic="customers"),
}
END = 12  # of the compacted topic


@pytest.fixture(scope="module")
def ids(platform: Settings) -> dict[str, str]:
    broker, producer = topics.client(platform, KafkaUser.ADMIN), Producer({**platform.kafka(), "acks": "all"})
    end = topics.ends(broker, ["customers"]).at("customers", 0)
    for n in range(end, END):
        producer.produce("customers", b"{}", f"k{n}", partition=0)
    assert producer.flush(deadline(10)) == 0
    found = topics.ends(broker, ["page_view", "customers"])
    assert found.at("customers", 0) == END
    assert topics.compacted_topics(platform, found.ids) == {"customers"}
    return dict(found.ids)


@pytest.fixture
def prefix(connection: Connection) -> Iterator[str]:
    made = uuid.uuid4().hex[:8]
    yield made
    forget(connection, *(f"{made}_{view}" for case in CASES.values() for view in case.views | case.others))


@pytest.mark.parametrize("why", CASES)
def test_the_plan_for_readers(
    platform: Settings, connection: Connection, ids: dict[str, str], prefix: str, why: str
) -> None:
    case = CASES[why]
    topic, topic_id = case.topic, ids[case.topic]

    def place(view: str, reader: Reader, reached: Positions) -> None:
        a_view(connection, f"{prefix}_{view}")
        merged_to(connection, f"{prefix}_{view}", reached, leader_epoch=reader[1])

    for view, reader in case.views.items():
        place(view, reader, Positions({topic: {0: reader[0]}}, {topic: topic_id}))
    for view, reader in case.others.items():
        elsewhere = {topic: {1: reader[0]}, "click": {0: reader[0]}}
        place(view, reader, Positions(elsewhere, {topic: topic_id, "click": "another-id"}))
    archive = None
    if case.archive is not None:
        position, epoch = case.archive
        epochs = {} if epoch is None else {0: epoch}
        archive = Progress(topic_id, {0: position}, {0: position}, {0: 0}, epochs=epochs)
    cut = OpenCut(topic, topic_id, 0, (CUT_AT,), (OLD,), None)
    plan = accept_cut._plan(platform, topics.client(platform), connection, cut, archive)
    trusted_from, moves, lost, views = case.plan
    assert plan == Plan(trusted_from, moves, lost, tuple(f"{prefix}_{view}" for view in views))
