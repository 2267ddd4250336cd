"""The ledger does not name the person, remembers how far an erasure has come, and is never written over."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import psycopg
import pytest

from tests.builders.erasures import a_count, a_subject, an_end, an_erasure, forget_erasures
from tests.deadline import deadline, until
from tests.library.advisory_lock import require_waiting
from truelog.erasure import ledger
from truelog.erasure.erasure import Erasure, subject_fields
from truelog.erasure.ledger import CoveredDay, Step, TouchedDay
from truelog.erasure.subject import Subject, secret_check
from truelog.log.positions import Positions
from truelog.measures.registry import sql_functions
from truelog.schema.loading.events import load_events
from truelog.storage.database import Connection, connect
from truelog.storage.migration import migrate
from truelog.support.errors import BadInput, Stale
from truelog.support.settings import Settings

SECRET = b"secret"
ENDS = Positions({"like": {0: 7, 1: 0}, "share": {0: 3}}, {"like": "ab/cd+1=", "share": "x_y-z"})


def erasure(number: int, person: str = "ann") -> Erasure:
    subjects = frozenset({Subject.of(SECRET, "person_id", person), Subject.of(SECRET, "person_id", f"{person}2")})
    fields = {"like": ("person_id",), "share": ("person_id",)}
    return Erasure(UUID(int=number), subjects, fields, ENDS, secret_check(SECRET))


@pytest.fixture
def connection(postgresql: Settings) -> Iterator[Connection]:
    migrate(postgresql, sql_functions())
    with connect(postgresql, autocommit=True) as connection:
        forget_erasures(connection)
        yield connection


def test_an_erasure_is_read_as_it_was_recorded(connection: Connection) -> None:
    made = ledger.record(connection, erasure(1))
    assert made == erasure(1)
    [entry] = ledger.entries(connection)
    assert (loaded := entry.erasure) == made
    assert (entry.step, entry.is_finished, entry.records) == (Step.RECORDED, False, {})
    assert (loaded.ends, dict(loaded.ends.ids), loaded.fields) == (ENDS, dict(ENDS.ids), made.fields)
    assert ledger.unfinished(connection) == [made]


def test_a_request_that_is_repeated_continues_the_unfinished_erasure(connection: Connection) -> None:
    first = ledger.record(connection, erasure(1))
    assert ledger.record(connection, erasure(2)) == first
    assert ledger.record(connection, erasure(3, "bob")) == erasure(3, "bob")
    again = replace(erasure(4), ends=Positions(ENDS.offsets, dict.fromkeys(ENDS.ids, "another-id")))
    assert ledger.record(connection, again) == again  # the topics were created again
    for step in list(Step)[1:]:
        ledger.finish(connection, first, step)
    assert ledger.record(connection, erasure(2)) == erasure(2)  # it covers what has come since
    assert [each.id.int for each in ledger.unfinished(connection)] == [3, 4, 2]


def test_steps_are_finished_in_their_order_and_may_be_repeated(connection: Connection) -> None:
    made = ledger.record(connection, erasure(1))
    with pytest.raises(Stale, match="RECORDED"):
        ledger.finish(connection, made, Step.ARCHIVED)
    ledger.finish(connection, made, Step.PUBLISHED)
    ledger.finish(connection, made, Step.ARCHIVED)
    ledger.finish(connection, made, Step.PUBLISHED)
    assert ledger.step_of(connection, made) is Step.ARCHIVED


def test_an_erasure_begins_again_after_a_restore(connection: Connection) -> None:
    made = ledger.record(connection, erasure(1))
    ledger.begin_again(connection, made)
    assert ledger.step_of(connection, made) is Step.RECORDED  # its event was never sent
    assert ledger.restore(connection, erasure(2, "bob"), Step.PROVED)
    assert not ledger.is_adopted(connection, erasure(2, "bob"))
    ledger.begin_again(connection, erasure(2, "bob"))
    assert ledger.step_of(connection, erasure(2, "bob")) is Step.PUBLISHED
    assert ledger.is_adopted(connection, erasure(2, "bob"))
    assert ledger.restore(connection, erasure(3, "cid"), Step.PUBLISHED, adopted=True)
    assert ledger.is_adopted(connection, erasure(3, "cid"))


def test_a_restore_keeps_the_step_that_the_ledger_has(connection: Connection) -> None:
    made = ledger.record(connection, erasure(1))
    assert not ledger.restore(connection, made, Step.ARCHIVED)
    assert ledger.step_of(connection, made) is Step.RECORDED
    assert ledger.restore(connection, erasure(2, "bob"), Step.ARCHIVED)
    assert ledger.step_of(connection, erasure(2, "bob")) is Step.ARCHIVED


def test_an_erasure_touches_the_days_of_its_covered_records(connection: Connection) -> None:
    counts = CoveredDay("like", 0, DAY, 5), CoveredDay("like", 1, DAY, 2), CoveredDay("share", 0, DAY, 1)
    an_erasure(connection, erasure(1), Step.COUNTED, *counts)
    assert ledger.touched_days(connection, ["like", "share"]) == [TouchedDay(str(UUID(int=1)), DAY, is_rewritten=False)]
    assert ledger.touched_days(connection, ["follow"]) == []
    ledger.finish(connection, erasure(1), Step.REWRITTEN)
    assert ledger.touched_days(connection, ["share"]) == [TouchedDay(str(UUID(int=1)), DAY, is_rewritten=True)]


def test_stored_counts_stay(connection: Connection) -> None:
    made, first = ledger.record(connection, erasure(1)), CoveredDay("like", 0, DAY, 5)
    ledger.record_counts(connection, made, [first])
    ledger.record_counts(connection, made, [replace(first, records=1), CoveredDay("share", 0, DAY, 2)])
    assert ledger.counts(connection, made) == [first, CoveredDay("share", 0, DAY, 2)]


def test_readers_know_an_erasure_when_the_archive_shows_it(connection: Connection) -> None:
    made, beginning = ledger.record(connection, erasure(1)), Positions({}, ENDS.ids)
    for step in list(Step)[1:5]:
        assert ledger.rewritten(connection) == set()
        assert not ledger.erased_below(connection, ENDS).offsets
        assert ledger.unknown(connection, beginning, ENDS, frozenset()) == []
        ledger.finish(connection, made, step)
    known = ledger.rewritten(connection)
    assert known == {str(made.id)}
    assert ledger.erased_below(connection, ENDS) == ENDS
    assert ledger.unknown(connection, beginning, ENDS, frozenset()) == [str(made.id)]
    assert ledger.unknown(connection, beginning, ENDS, known) == []


@pytest.mark.parametrize(
    ("offsets", "share_id", "may_cover"),
    [
        ({"like": {0: 7, 1: 0}, "share": {0: 3}}, "x_y-z", False),
        ({"like": {0: 7, 1: 0}, "share": {0: 2}}, "x_y-z", True),
        ({"like": {0: 7, 1: 0}, "share": {0: 2}}, "created-again", False),
        ({"like": {0: 6, 1: 0}, "share": {0: 3}}, "x_y-z", True),
        ({"like": {0: 7, 1: 0, 2: 0}, "share": {0: 3}}, "x_y-z", False),
    ],
)
def test_an_erasure_may_cover_records_below_its_ends(
    connection: Connection, offsets: dict[str, dict[int, int]], share_id: str, may_cover: bool
) -> None:
    an_erasure(connection, erasure(1))
    begin = Positions(offsets, {**ENDS.ids, "share": share_id})
    end = Positions({topic: dict.fromkeys(by, 100) for topic, by in offsets.items()}, begin.ids)
    assert bool(ledger.unknown(connection, begin, end, frozenset())) is may_cover


DAY = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize(
    "write",
    [
        lambda connection, made: a_subject(connection, made, "person_id", b"ann"),
        lambda connection, made: a_subject(connection, made, "Ann Smith", bytes(32)),
        lambda connection, made: an_end(connection, made, "x", ["Ann Smith"]),
        lambda connection, made: an_end(connection, made, "Ann Smith", ["id"]),
        lambda connection, made: an_end(connection, made, "x", []),
        lambda connection, made: a_count(connection, made, "Ann Smith", DAY, 1),
        lambda connection, made: a_count(connection, made, "like", DAY, 0),
    ],
)
def test_no_free_text_fits(connection: Connection, write: Callable[[Connection, Erasure], None]) -> None:
    made = ledger.record(connection, erasure(1))
    with pytest.raises(psycopg.errors.CheckViolation):
        write(connection, made)


def test_what_the_archive_shows_is_unknown_while_an_erasure_is_written(connection: Connection) -> None:
    an_erasure(connection, erasure(1), Step.PROVED)
    made = ledger.record(connection, erasure(2, "bob"))
    for step in (Step.PUBLISHED, Step.ARCHIVED):
        ledger.finish(connection, made, step)
        assert ledger.shown(connection) == frozenset({str(UUID(int=1))})
    ledger.finish(connection, made, Step.COUNTED)
    assert ledger.shown(connection) is None
    ledger.finish(connection, made, Step.REWRITTEN)
    assert ledger.shown(connection) == frozenset({str(UUID(int=1)), str(UUID(int=2))})


def test_one_erasure_runs_at_a_time(connection: Connection, postgresql: Settings) -> None:
    def try_lock() -> bool:
        with connect(postgresql, autocommit=True) as other, ledger.exclusive(other):
            return True

    with ThreadPoolExecutor(1) as pool:
        with ledger.exclusive(connection):
            waiting = pool.submit(try_lock)
            until(lambda: require_waiting(postgresql), 10, "the second erasure")
            assert not waiting.done()
        assert waiting.result(deadline(10))


def test_the_fields_of_a_subject_belong_to_the_topics_that_declare_them() -> None:
    found = subject_fields(load_events(), {"person_id": "ann", "ip": "::1"})
    assert found["page_view"] == ("ip",)
    assert found["like"] == found["profile"] == ("person_id",)
    assert "payment" not in found
    with pytest.raises(BadInput, match="no event type has the subject name_of_cat"):
        subject_fields(load_events(), {"name_of_cat": "ann"})
