"""The protocol of exclusions, without Spark: which records are left out, what is proved, and when a view stops."""

import uuid
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import cast

import pytest

from tests.builders.views import has_read
from tests.library.kernel.zombie import counter
from truelog.kernel import exclusions
from truelog.kernel.exclusions import Excluded, Exclusions
from truelog.log.positions import Positions
from truelog.log.records import Coordinates
from truelog.storage.database import Connection
from truelog.support.errors import TooManyExcluded
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView

IDS = {"page_view": "an-id", "click": "another-id"}


def bad(offset: int, partition: int = 0, topic: str = "page_view", error: str = "DIVIDE_BY_ZERO") -> Excluded:
    return Excluded(topic, partition, offset, error)


@dataclass
class Bench:
    """A view of two topics."""

    connection: Connection
    compiled: CompiledView = field(default_factory=lambda: counter(f"excl_{uuid.uuid4().hex[:8]}"))

    def of(self, ids: dict[str, str] | None = None, /, **readings: int) -> Exclusions:
        return Exclusions(self.connection, self.compiled, ids or IDS, readings)

    def add(self, *offsets: int, **readings: int) -> None:
        self.of(**readings).add([bad(each) for each in offsets])

    def read(self, records: int, *, hours: int = 0, hour_records: int = 10**6, earlier_records: int = 0) -> None:
        """The view has read so many records. Its last merge was so many hours after the hour of its last exclusion."""
        query = "SELECT date_trunc('hour', coalesce(max(noticed_at), now())) FROM truelog.exclusion WHERE view = %s"
        [(hour,)] = cast("list[tuple[datetime]]", self.connection.execute(query, (self.compiled.name,)).fetchall())
        has_read(
            self.connection,
            self.compiled.name,
            records=records,
            hour=hour + timedelta(hours=hours),
            hour_records=hour_records,
            earlier_records=earlier_records,
        )

    def require_few(self, batch: int = 0) -> None:
        exclusions.require_few(self.connection, self.compiled, batch)

    def stops(self, batch: int = 0) -> str:
        with pytest.raises(TooManyExcluded) as stopped:
            self.require_few(batch)
        return str(stopped.value)


@pytest.fixture
def bench(postgresql: Settings, connection: Connection) -> Bench:
    return Bench(connection)


def ends(**offsets: int) -> Positions:
    return Positions({topic: {0: end} for topic, end in offsets.items()}, IDS)


def test_only_records_below_the_positions_are_left_out(bench: Bench) -> None:
    bench.of().add([bad(3), bad(7), bad(3, topic="click"), bad(0, partition=1)])
    at: list[tuple[Positions, list[Coordinates]]] = [
        (ends(page_view=3), []),
        (ends(page_view=4), [("page_view", 0, 3)]),
        (ends(page_view=8, click=4), [("click", 0, 3), ("page_view", 0, 3), ("page_view", 0, 7)]),
        (Positions({"page_view": {0: 3, 1: 1}}, IDS), [("page_view", 1, 0)]),
    ]
    for positions, expected in at:
        assert sorted(bench.of().below(positions)) == expected


def test_an_exclusion_belongs_to_one_view_topic_and_reading(bench: Bench) -> None:
    bench.add(1)
    bench.add(2, page_view=3)
    here = ends(page_view=9)
    assert bench.of().below(here) == [("page_view", 0, 1)]
    assert bench.of(page_view=3).below(here) == [("page_view", 0, 2)]
    assert bench.of({"page_view": "created again"}).below(here) == []
    assert bench.of({"click": "another-id"}).below(here) == []
    later = counter(bench.compiled.name, version=2)
    assert Exclusions(bench.connection, later, IDS, {}).below(here) == []
    assert Exclusions(bench.connection, counter("no_such_view"), IDS, {}).below(here) == []


def test_an_exclusion_is_stored_once_with_its_first_error_and_the_records_merged_then(bench: Bench) -> None:
    bench.add(1)
    bench.read(40)
    bench.of().add([bad(1, error="another"), bad(2)])
    query = 'SELECT "offset", error, merged FROM truelog.exclusion WHERE view = %s ORDER BY 1'
    rows = bench.connection.execute(query, (bench.compiled.name,)).fetchall()
    assert rows == [(1, "DIVIDE_BY_ZERO", 0), (2, "DIVIDE_BY_ZERO", 40)]


def test_a_proof_is_of_one_code_and_is_not_repeated(bench: Bench) -> None:
    bench.add(1, 2)
    here, other = ends(page_view=9), replace(bench.compiled.own, fingerprint="other code")
    asked = list[list[Coordinates]]()

    def unfounded(records: list[Coordinates]) -> list[Coordinates]:
        asked.append(sorted(records))
        return [each for each in records if each[2] == 2]

    def proved(*, every: bool = False, compiled: CompiledView = bench.compiled) -> list[list[Coordinates]]:
        """The records that the proof has asked for."""
        asked.clear()
        exclusions.prove(Exclusions(bench.connection, compiled, IDS, {}), here, unfounded, every=every)
        return [*asked]

    one, two = ("page_view", 0, 1), ("page_view", 0, 2)
    assert bench.of().last_refuted(here) is None
    assert proved() == [[one, two]]
    assert (bench.of().below(here), bench.of().refuted(here)) == ([one], [two])
    refuted_at = bench.of().last_refuted(here)
    assert refuted_at is not None
    assert proved() == []
    assert proved(every=True) == [[one]]
    assert proved(compiled=CompiledView((other,))) == [[one]]
    assert proved() == [[one]], "the proof is of the other code now"
    assert bench.of().last_refuted(here) == refuted_at
    assert bench.of().last_refuted(ends(page_view=2)) is None


def test_records_that_are_dropped_or_read_again_are_no_longer_left_out(bench: Bench) -> None:
    bench.add(1, 2)
    bench.of().add([bad(1, topic="click")])
    bench.of().drop([("page_view", 0, 1)])
    bench.of().drop_earlier()  # no reading is earlier than the first
    here = ends(page_view=9, click=9)
    assert sorted(bench.of().below(here)) == [("click", 0, 1), ("page_view", 0, 2)]
    bench.add(5, page_view=1)
    bench.of({"page_view": "an-id"}, page_view=1).drop_earlier()
    assert bench.of().below(here) == [("click", 0, 1)]
    assert bench.of(page_view=1).below(ends(page_view=9)) == [("page_view", 0, 5)]


def test_ten_records_never_stop_a_view(bench: Bench) -> None:
    bench.require_few()
    bench.add(*range(10))
    bench.require_few()
    bench.read(10)
    bench.require_few()
    bench.of().add([bad(10, error="the newest")])
    assert "fails on 11 of the last 10 records" in bench.stops()
    assert "The last error: the newest" in bench.stops()


def test_one_percent_of_the_last_ten_thousand_records_may_be_excluded(bench: Bench) -> None:
    bench.read(0)
    bench.add(*range(100))
    bench.read(10_000)
    bench.require_few()  # all of these records are before the last ten thousand
    bench.read(9_999)
    assert "fails on 100 of the last 9,999 records" in bench.stops()


def test_the_last_records_are_at_most_ten_thousand_or_the_batch(bench: Bench) -> None:
    bench.read(15_000)
    bench.add(*range(100))
    bench.read(20_000)
    bench.require_few()
    bench.add(100)
    assert "fails on 101 of the last 10,000 records" in bench.stops()
    bench.require_few(batch=12_000)
    assert "fails on 101 of the last 10,000 records" in bench.stops(batch=10_000)
    assert "fails on 101 of the last 10,050 records" in bench.stops(batch=10_050)


def test_one_percent_of_two_hours_may_be_excluded(bench: Bench) -> None:
    bench.add(*range(20))
    for hours, is_counted in ((0, True), (1, True), (2, False)):
        bench.read(10**6, hours=hours, hour_records=1_200, earlier_records=800)
        bench.require_few()
        bench.read(10**6, hours=hours, hour_records=1_100, earlier_records=800)
        if is_counted:
            assert "fails on 20 of 1,900 records of this and the last hour" in bench.stops()
        else:
            bench.require_few()
