"""The notifier forgets a person: nothing about the person is kept, waits, or is retracted. Others stay."""

import uuid
from collections.abc import Iterator

import pytest

from tests.builders.notifications import everything_is_delivered, no_notifications, set_row_rule, set_rule
from tests.library.notifications.found_rows import FoundRows, cart, found_rows, hit, match
from tests.library.notifications.rounds import look
from truelog.erasure.erasure import Erasure, Erasures
from truelog.erasure.subject import Subject
from truelog.forgetting.notification_copies import forget_notifications, forget_rows, renew_rows
from truelog.log.positions import Positions
from truelog.maintenance.notifier_place import unnoticed
from truelog.notifications import history
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings
from truelog.tables.output import outbox

PERSON = "xanthippe-4711"
TABLES = ("notification_row", "notification_incident", "notification_delivery")


@pytest.fixture
def matches(postgresql: Settings, connection: Connection) -> Iterator[FoundRows]:
    yield from _rows(connection, "matches")


@pytest.fixture
def hits(postgresql: Settings, connection: Connection) -> Iterator[FoundRows]:
    yield from _rows(connection, "search_hits")


@pytest.fixture
def carts(postgresql: Settings, connection: Connection) -> Iterator[FoundRows]:
    yield from _rows(connection, "cart")


def _rows(connection: Connection, name: str) -> Iterator[FoundRows]:
    no_notifications(connection)
    with found_rows(connection, name) as view:
        yield view
    no_notifications(connection)


def kept(connection: Connection) -> dict[str, list[str]]:
    return {
        table: [str(row) for (row,) in connection.execute(f"SELECT t::text FROM truelog.{table} AS t".encode())]
        for table in TABLES
    }


def erasures_of(person: str) -> Erasures:
    subjects = frozenset({Subject.of(b"s", "person_id", person)})
    return Erasures(b"s", (Erasure(uuid.uuid4(), subjects, {}, Positions()),))


def said(connection: Connection) -> list[tuple[str, str, str]]:
    """What each notification says, its text and its outcome, from the first to the last."""
    found = reversed(history.deliveries(connection, None, 100))
    return [(each["says"], each["text"], each["outcome"]) for each in found]


def key(cart_id: str) -> str:
    return f'{{"cart_id":"{cart_id}"}}'


def told_of_carts(carts: FoundRows, *rows: dict[str, object], group_by: str | None = None) -> None:
    """The rows have opened incidents, and the channel knows."""
    set_row_rule(carts.connection, "many", "quantity > 10", group_by=group_by, template="$cart_id $product")
    look(carts.connection)
    carts.change(*rows)
    look(carts.connection)
    everything_is_delivered(carts.connection)


@pytest.mark.parametrize("person", ["xanthippe-4711", "2"])
def test_nothing_about_the_person_is_kept_or_retracted(matches: FoundRows, person: str) -> None:
    connection = matches.connection
    set_rule(connection, "tell", "match", "fraud")
    look(connection)
    theirs, others = match("m1", entity_id=person), match("m9", entity_id="bob")
    matches.change(theirs, others)
    look(connection)
    assert {table: len(rows) for table, rows in kept(connection).items()} == dict.fromkeys(TABLES, 2)
    for _ in range(2):
        forget_notifications(connection, erasures_of(person), ["matches"])
        assert {table: len(rows) for table, rows in kept(connection).items()} == dict.fromkeys(TABLES, 1)
    assert "bob" in kept(connection)["notification_row"][0]
    matches.change(removed=(theirs,))
    look(connection)
    assert len(kept(connection)["notification_delivery"]) == 1
    matches.change(removed=(others,))
    look(connection)
    assert len(kept(connection)["notification_delivery"]) == 2  # a row of another person is retracted as before


def test_a_text_of_the_person_is_forgotten_by_the_key_of_its_row(hits: FoundRows) -> None:
    """A hit does not name the author, so the rows that an erasure changes say what goes."""
    connection = hits.connection
    set_rule(connection, "tell", "hit", "outages")
    look(connection)
    theirs, others = hit("of xanthippe"), hit("of zeno")  # no id of the platform contains such a text
    hits.change(theirs, others)
    look(connection)
    keys = [row[0] for row in connection.execute("SELECT key FROM truelog.notification_row ORDER BY key").fetchall()]
    for _ in range(2):
        forget_rows(connection, hits.compiled, keys[:1])
        assert {table: len(rows) for table, rows in kept(connection).items()} == dict.fromkeys(TABLES, 1)
    hits.change(removed=(theirs,))
    look(connection)
    assert {table: len(rows) for table, rows in kept(connection).items()} == dict.fromkeys(TABLES, 1)
    assert "xanthippe" not in str(kept(connection))


@pytest.mark.parametrize("is_read_meanwhile", [False, True])
def test_an_incident_of_a_row_that_still_fits_goes_on_without_its_text(
    carts: FoundRows, is_read_meanwhile: bool
) -> None:
    connection = carts.connection
    told_of_carts(carts, cart("a", 50, f"by {PERSON}"))
    for _ in range(2):
        forget_rows(connection, carts.compiled, [key("a")])
    assert PERSON not in str(kept(connection))
    carts.change(cart("a", 49, "lamp"))  # the repair
    if is_read_meanwhile:
        look(connection)
    for _ in range(2):
        renew_rows(connection, carts.compiled, [key("a")])
    assert "lamp" in kept(connection)["notification_row"][0]
    look(connection)
    assert said(connection) == [("opened", "many: erased", "delivered")]
    carts.change(cart("a", 9, "lamp"))
    look(connection)
    assert said(connection)[1:] == [("resolved", "many: erased", "waiting")]


def test_a_text_of_what_a_row_is_now_stays(carts: FoundRows) -> None:
    """The notifier opens an incident between the repair and what follows it."""
    connection = carts.connection
    told_of_carts(carts, cart("b", 1))
    carts.change(cart("b", 11, "lamp"))  # the repair
    look(connection)
    renew_rows(connection, carts.compiled, [key("b")])
    assert said(connection) == [("opened", "b lamp", "waiting")]


def test_a_row_that_vanishes_ends_only_the_incident_that_it_was_alone_in(carts: FoundRows) -> None:
    connection = carts.connection
    mine, others = cart(PERSON, 50, PERSON), cart("b", 11)
    told_of_carts(carts, mine, cart("a", 12), others, group_by="product")
    keys = [key(PERSON), key("a")]
    forget_rows(connection, carts.compiled, keys)
    carts.change(removed=(mine, cart("a", 12)))
    for _ in range(2):
        renew_rows(connection, carts.compiled, keys)
    assert PERSON not in str(kept(connection))
    look(connection)
    told = said(connection)
    assert ("ended", "many: erased", "waiting") in told
    assert len(told) == 2  # the beginning of the other one, which goes on
    carts.change(removed=(others,))
    look(connection)
    assert said(connection)[2][0] == "resolved"


def test_an_incident_that_names_the_person_ends_without_a_text(carts: FoundRows) -> None:
    connection, mine = carts.connection, cart(PERSON, 50)
    told_of_carts(carts, mine, cart("b", 11))
    for _ in range(2):
        forget_notifications(connection, erasures_of(PERSON), ["cart"])
        assert PERSON not in str(kept(connection))
    assert said(connection) == [("opened", "b lamp", "delivered"), ("ended", "many: erased", "waiting")]
    carts.change(removed=(mine,))
    look(connection)
    assert len(said(connection)) == 2


def test_an_end_that_waits_is_still_told(carts: FoundRows) -> None:
    connection, mine = carts.connection, cart(PERSON, 50)
    told_of_carts(carts, mine)
    carts.change(removed=(mine,))
    look(connection)
    for _ in range(2):
        forget_notifications(connection, erasures_of(PERSON), ["cart"])
    assert said(connection) == [("resolved", "many: erased", "waiting")]
    assert PERSON not in str(kept(connection))


def test_a_command_that_is_killed_after_a_repair_forgets_its_keys_later(carts: FoundRows) -> None:
    """The view is EQUAL when it is repeated, so no key differs."""
    connection, mine = carts.connection, cart(f"by {PERSON}", 50)
    told_of_carts(carts, mine)
    forget_rows(connection, carts.compiled, [key(f"by {PERSON}")])
    carts.change(removed=(mine,))
    look(connection)
    assert PERSON in str(kept(connection))
    forget_notifications(connection, erasures_of("bob"), ["cart"])
    assert PERSON not in str(kept(connection))
    assert said(connection) == [("resolved", "many: erased", "waiting")]


def test_a_row_that_passes_by_is_no_news(carts: FoundRows) -> None:
    """It fits, and the rule does not know it, because it is older than the rule."""
    connection = carts.connection
    carts.change(cart("a", 50))
    set_row_rule(connection, "many", "quantity > 10")
    look(connection)
    pass_by(carts)
    look(connection)
    assert said(connection) == []
    carts.change(cart("b", 11))
    with pytest.raises(ServiceDown, match="the notifier has not read them yet"):
        pass_by(carts)
    look(connection)
    assert [text for _, text, _ in said(connection)] == ["b 11"]


def pass_by(carts: FoundRows) -> None:
    with carts.connection.transaction(), unnoticed(carts.connection, carts.compiled):
        outbox.pass_by(carts.connection, carts.compiled, 0)
