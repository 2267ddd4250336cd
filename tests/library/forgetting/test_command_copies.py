"""The command log forgets a person: accepted events, refusals, and the states of keys. Others stay."""

import uuid
from collections.abc import Mapping

import psycopg
import pytest

from tests.builders.commands import forget_commands as empty_command_log
from tests.builders.erasures import an_erasure, forget_erasures
from tests.library.commands.decisions import PARTITION, TYPES, Shop, claim, request, statuses_of
from tests.library.commands.made_fold import make_fold
from truelog.commands import history
from truelog.commands.claims import CLAIM
from truelog.commands.folding.states import KeyName, read_logged
from truelog.erasure.erasure import Erasure, Erasures
from truelog.erasure.subject import Subject
from truelog.forgetting import command_copies
from truelog.forgetting.command_copies import forget_commands, require_read
from truelog.log.positions import Positions
from truelog.storage.database import Connection, read_value
from truelog.support.errors import NotForgotten

SECRET = b"secret"
PERSON = "xanthippe-4711"
STORED = (
    "SELECT c::text FROM truelog.command c",
    "SELECT convert_from(value, 'UTF8') || e::text FROM truelog.command_event e",
    "SELECT k::text FROM truelog.command_key k",
)


@pytest.fixture
def shop(connection: Connection) -> Shop:
    forget_erasures(connection)
    empty_command_log(connection)
    return Shop(connection)


def erasure_of(shop: Shop, person: str, ends: Mapping[int, int]) -> Erasure:
    reading = shop.readings[CLAIM]
    upto = Positions({CLAIM: dict(ends)}, {CLAIM: reading.topic_id})
    return Erasure(uuid.uuid4(), frozenset({Subject.of(SECRET, "holder", person)}), {CLAIM: ("holder",)}, upto)


def erase(shop: Shop, person: str = PERSON) -> None:
    """Erase what is in the log so far, which the archive no longer has."""
    erasure = erasure_of(shop, person, shop.readings[CLAIM].offsets)
    an_erasure(shop.connection, erasure)
    forget_commands(shop.connection, TYPES, Erasures(SECRET, (erasure,)))
    forget_commands(shop.connection, TYPES, Erasures(SECRET, (erasure,)))


def stored(shop: Shop) -> str:
    return "\n".join(str(text) for each in STORED for (text,) in shop.connection.execute(each.encode()).fetchall())


def test_nothing_about_the_person_is_stored(shop: Shop) -> None:
    accepted = shop.decide(
        claim(PERSON, name="xq", key=f"{PERSON}-1"), claim("bob", name="bobby"), claim(PERSON, name="xq")
    )
    assert statuses_of(accepted) == [200, 200, 409]  # the refusal names the person
    shop.publish()
    shop.read()
    assert stored(shop).count(PERSON) >= 4
    erase(shop)
    assert PERSON not in stored(shop)
    assert "bob" in stored(shop)
    decided = history.latest(shop.connection, 10)
    assert sorted((each.result, each.is_in_log) for each in decided) == [
        ("accepted", True),
        ("accepted", True),
        ("erased", False),
    ]
    last = shop.connection.execute("SELECT max(number) FROM truelog.command_event").fetchone()
    assert last is not None
    assert shop.feed.id_of(int(str(last[0]))) is not None  # the relay continues


def test_the_states_are_made_again_from_the_erased_log(shop: Shop) -> None:
    shop.decide(claim(PERSON, name="xq"), claim("bob", name="bobby"))
    shop.publish()
    shop.read()
    before = shop.generations[CLAIM]
    erase(shop)
    assert CLAIM not in shop.generations  # nothing is decided until the log is read
    reading = shop.readings[CLAIM]
    shop.readings[CLAIM] = make_fold(
        shop.connection, CLAIM, shop.commands.codes[CLAIM], reading.topic_id, {PARTITION: 0}
    )
    assert shop.generations[CLAIM] != before
    shop.topics[CLAIM] = [value for value in shop.topics[CLAIM] if PERSON.encode() not in value]
    shop.read()
    keys = [KeyName(CLAIM, "username:xq"), KeyName(CLAIM, "username:bobby")]
    found = read_logged(shop.connection, keys)
    assert {name.key: each.state for name, each in found.items()} == {"username:bobby": {"holder": "bob"}}


def test_an_event_that_is_not_in_the_log_yet_is_published(shop: Shop) -> None:
    shop.decide(claim(PERSON, name="xq"))
    erase(shop)
    [row] = shop.feed.next_rows(shop.published + 1)
    assert row.value is not None
    assert PERSON.encode() in row.value


def test_a_number_that_names_the_person_says_nothing_in_the_commands_of_others(shop: Shop) -> None:
    shop.decide(claim("2", name="xq", key="first"), claim("bob", name="bobby", key="second"))
    shop.decide(request("release_username", "third", username="bobby", person_id="bob"))  # answers with version 2
    shop.publish()
    shop.read()
    erase(shop, "2")
    kept = shop.connection.execute(
        "SELECT key, idempotency_key FROM truelog.command ORDER BY idempotency_key"
    ).fetchall()
    assert kept == [("username:bobby", "second"), ("username:bobby", "third"), ("", None)]


def test_a_crash_leaves_no_decision_about_an_event_that_is_forgotten(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.decide(claim(PERSON, name="xq", key="first"), claim("bob", name="bobby", key="second"))
    shop.publish()
    shop.read()
    erasure = erasure_of(shop, PERSON, shop.readings[CLAIM].offsets)
    an_erasure(shop.connection, erasure)
    with monkeypatch.context() as failing:
        failing.setattr(command_copies, "_FORGET_DECISIONS", "SELECT 1 / 0, %s, %s, %s")
        with pytest.raises(psycopg.errors.DivisionByZero):
            forget_commands(shop.connection, TYPES, Erasures(SECRET, (erasure,)))
    forget_commands(shop.connection, TYPES, Erasures(SECRET, (erasure,)))
    kept = "SELECT key, idempotency_key, body_sha256 <> '', answer FROM truelog.command ORDER BY idempotency_key"
    [other, forgotten] = shop.connection.execute(kept.encode()).fetchall()
    assert other[:3] == ("username:bobby", "second", True)
    assert forgotten[:3] == ("", None, False)
    assert PERSON not in str(forgotten)
    assert "xq" not in str(forgotten)


def test_an_erasure_waits_until_the_reader_has_found_the_events(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_copies, "_READER_SECONDS", 0.1)
    shop.decide(claim(PERSON, name="xq"))
    shop.publish()
    ends = erasure_of(shop, PERSON, {PARTITION: len(shop.topics[CLAIM])}).ends
    with pytest.raises(NotForgotten, match=r"are not found in the log yet.* Start the services `commands`"):
        require_read(shop.connection, ends)
    shop.read()
    require_read(shop.connection, ends)
    shop.decide(claim("bob", name="bobby"))  # an event beyond the ends may wait
    require_read(shop.connection, ends)


def test_the_command_log_is_read_in_portions(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_copies, "_PORTION", 2)
    portions = command_copies._portions(shop.connection, "SELECT generate_series(1, %s)", 5)
    assert next(portions) == [(1,), (2,)]
    assert read_value(shop.connection, "SELECT count(*) FROM pg_cursors WHERE is_holdable") == 1  # the rest is there
    assert [*portions] == [[(3,), (4,)], [(5,)]]
