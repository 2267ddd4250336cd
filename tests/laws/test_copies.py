"""Events with the same id count once within the horizon, however the log is cut, archived and rebuilt.

Each partition of one log is a case: ids repeat within the horizon and outside it, the brokers' clocks go back, some
records are not events, and the transform fails on some events.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from psycopg import sql
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tests.beds.archived import LATER, Archived, Click, new_archive
from tests.beds.lab import Lab
from tests.laws import naive_copies
from tests.nightly_cases import nightly_except
from truelog import Sum, View
from truelog.batch import partials, rebuild
from truelog.batch.partial_selection import PartialRange
from truelog.log.positions import Positions
from truelog.reconcile import certificate_store
from truelog.reconcile.certificate_verifier import CertificateVerifier, VerificationVerdict
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.reconcile import reconcile
from truelog.schema.loading.events import load_events
from truelog.spark.session import session
from truelog.storage.database import connect
from truelog.support.settings import Settings
from truelog.tables.dedupe import compile as copies
from truelog.tables.dedupe import merge as kernel_copies
from truelog.tables.table import Table

PARTITIONS, BATCHES = 12, 5
HORIZON = 60  # seconds
_STEPS = (0, 1, HORIZON // 2, HORIZON, HORIZON + 1, -HORIZON // 2, -2 * HORIZON)

Place = tuple[int, int]  # partition, offset


def _each(click: DataFrame) -> DataFrame:
    return click.select("partition", "offset", F.col("search_id").cast("int").alias("spent"))


EACH = View(
    reads=("click",),
    transform=_each,
    key=("partition", "offset"),
    measures={"spent": Sum()},
    dedupe=f"{HORIZON} seconds",
)


def drawn_batches() -> list[list[list[Click]]]:
    """The clicks of each partition in each batch, the same in every run."""
    chosen = random.Random(48)
    reached, batches = [0] * PARTITIONS, []
    for _ in range(BATCHES):
        batches.append([list(_clicks(chosen, reached, partition)) for partition in range(PARTITIONS)])
    return batches


def _clicks(chosen: random.Random, reached: list[int], partition: int) -> Iterator[Click]:
    for _ in range(chosen.randint(0, 8)):
        reached[partition] += chosen.choice(_STEPS)
        event_id = chosen.choice(["a", "b", "c"]) if chosen.random() > 0.05 else ""
        far = 100 * HORIZON if not event_id else 0  # an invalid record must not change the log time
        yield Click(event_id, reached[partition] + far, spent="1" if chosen.random() > 0.03 else "x")


@dataclass
class Streamed:
    """A view of a log, streamed batch by batch, and the clicks of each partition."""

    ground: Archived
    log: list[list[Click]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    def add(self, batch: list[list[Click]]) -> None:
        for partition, clicks in enumerate(batch):
            self.log[partition] += clicks
        self.ground.append_all(dict(enumerate(batch)))
        self.ground.stream()

    def counted(self) -> set[Place]:
        """The records that the view has counted."""
        query = sql.SQL('SELECT partition, "offset" FROM {}').format(self._table(""))
        return {(int(str(p)), int(str(o))) for p, o in self.ground.lab.connection.execute(query).fetchall()}

    def remembered(self) -> dict[Place, float]:
        """The records in the table `seen`, and the seconds of their log times."""
        query = sql.SQL('SELECT partition, "offset", extract(epoch FROM log_time - %s)::float FROM {}')
        rows = self.ground.lab.connection.execute(query.format(self._table("seen")), (LATER,)).fetchall()
        return {(int(str(p)), int(str(o))): float(str(time)) for p, o, time in rows}

    def _table(self, side: str) -> sql.Identifier:
        [table] = (each.name for each in self.ground.compiled.tables if each.side == side)
        return sql.Identifier("state", table)

    def expected(self) -> tuple[set[Place], dict[Place, float]]:
        """The records that count, and those in `seen`, by the naive definition."""
        count, seen = set[Place](), dict[Place, float]()
        for partition, clicks in enumerate(self.log):
            offsets = [offset for offset, click in enumerate(clicks) if click.event_id]
            events = [clicks[offset] for offset in offsets]
            new = (offsets[number] for number in naive_copies.without_copies(events, HORIZON))
            count |= {(partition, offset) for offset in new if clicks[offset].spent == "1"}
            times = naive_copies.log_times(events)
            seen |= {(partition, offsets[n]): times[n] for n in naive_copies.remembered(events, HORIZON)}
        return count, seen


@pytest.fixture(scope="module")
def streamed(postgresql: Settings, s3: Settings, spark_session: None) -> Iterator[Streamed]:
    """The log, streamed, with partials that end within batches."""
    with connect(postgresql, autocommit=True) as connection:
        lab = Lab(session(postgresql, "tests"), postgresql, connection, load_events())
        ground = new_archive(lab, s3, EACH, PARTITIONS)
        made = Streamed(ground)
        for number, batch in enumerate(drawn_batches()):
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(kernel_copies, "_FEW", number % 2 * 1_000)  # in every other batch, copies are many
                made.add(batch)
            assert (made.counted(), made.remembered()) == made.expected()
        _make_partials(ground)
        yield made


def _make_partials(ground: Archived) -> None:
    """Make two partials with a gap between them. They begin and end anywhere."""
    chosen, ends = random.Random(84), ground.positions.offsets["click"]
    vectors = [sorted(chosen.randint(0, end) for _ in range(3)) for end in ends.values()]
    cuts = [Positions({"click": dict(enumerate(offsets))}, ground.ids) for offsets in zip(*vectors, strict=True)]
    beginning = Positions({"click": dict.fromkeys(ends, 0)}, ground.ids)
    for number, (begin, end) in enumerate([(beginning, cuts[0]), (cuts[1], cuts[2])]):
        covered = PartialRange(LATER + timedelta(days=number), begin, end)
        states = ground.rebuilder.states_between(ground.compiled.own, begin, end)
        partials.replace(ground.lab.spark, ground.lab.settings, ground.compiled.own, covered, states)


def test_the_log_contains_copies_of_every_kind(streamed: Streamed) -> None:
    count, seen = streamed.expected()
    events = {(p, o) for p, clicks in enumerate(streamed.log) for o, click in enumerate(clicks) if click.event_id}
    assert 60 < len(count) < len(events) - 60
    assert 0 < len(seen) < len(events) / 2
    assert any(click.spent == "x" for clicks in streamed.log for click in clicks)


@pytest.mark.parametrize("from_raw", [False, True])
def test_a_rebuild_equals_the_stream(streamed: Streamed, from_raw: bool) -> None:
    found = compare(replace(streamed.ground.rebuilder, from_raw=from_raw))
    assert (found.verdict, found.rows) == ("EQUAL", len(streamed.counted()))


def test_the_archive_alone_verifies_the_view(streamed: Streamed) -> None:
    lab, compiled = streamed.ground.lab, streamed.ground.compiled
    certificate = reconcile(lab.context, compiled).certificate
    assert certificate is not None
    made = certificate_store.find_certificate(lab.settings, certificate)
    check = CertificateVerifier(lab.spark, lab.settings, lab.types, compiled).verify(made)
    assert (check.answer, check.reason) == (VerificationVerdict.EQUAL, "")


def test_the_law_catches_a_rebuild_that_does_not_look_back(streamed: Streamed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the rebuild from partials is wrong, because the rebuild from raw bytes begins with the log."""
    monkeypatch.setattr(rebuild, "find_lookback", lambda *arguments: [])
    own, positions = streamed.ground.compiled.own, streamed.ground.positions.only(["click"])

    def rows(*, from_raw: bool) -> int:
        return replace(streamed.ground.rebuilder, from_raw=from_raw).states(own, positions).count()

    assert rows(from_raw=False) > rows(from_raw=True) == len(streamed.counted())


def _broker_time(topic: str, before: object) -> Column:
    return F.col("broker_time")


def _shorter(seen: Table) -> sql.Composed:
    return sql.SQL("make_interval(secs => {})").format(HORIZON - 1)


DEFECTS = {
    "log time goes back": (copies, "_log_time", _broker_time),
    "log time begins again in each batch": (kernel_copies, "_log_times", lambda *arguments: {}),
    "the horizon is too short": (kernel_copies, "_interval", _shorter),
    "no id is forgotten": (kernel_copies, "forget", lambda *arguments: None),
}


@pytest.mark.parametrize("defect", nightly_except(["log time goes back"], DEFECTS))
def test_the_law_catches_a_defective_stream(
    lab: Lab, s3: Settings, monkeypatch: pytest.MonkeyPatch, defect: str
) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    ground = new_archive(lab, s3, EACH, 3)
    made = Streamed(ground)
    for batch in drawn_batches():
        made.add([clicks if partition < 3 else [] for partition, clicks in enumerate(batch)])
    assert (made.counted(), made.remembered()) != made.expected()
