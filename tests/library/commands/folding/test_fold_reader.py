"""The reader of a fold: its death, a second reader, the reader of another fold, and copies of accepted events."""

import json
import logging
import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest

from tests.deadline import deadline, until
from tests.dying import dying_at
from tests.library.commands import decisions
from tests.library.commands.decisions import (
    COMMANDS,
    PARTITION,
    REGISTER,
    TYPES,
    Shop,
    claim,
    request,
    statuses_of,
)
from tests.library.commands.made_fold import make_fold
from truelog.commands import catalogue, command_log, history
from truelog.commands.claims import CLAIM
from truelog.commands.decision import ACCEPTED, REFUSED
from truelog.commands.folding import fold_reader
from truelog.commands.folding.fold_reader import FoldReader, Portion
from truelog.commands.folding.log_record import LogRecord
from truelog.storage.database import Connection, connect, read_value
from truelog.support.errors import ServiceDown, Stale
from truelog.support.settings import Settings


@pytest.fixture
def shop(connection: Connection) -> Shop:
    return Shop(connection)


def new_name() -> str:
    return f"n{uuid.uuid4().hex[:12]}"


def test_a_second_reader_is_refused(shop: Shop) -> None:
    name, before = new_name(), deepcopy(shop.readings)
    shop.decide(claim("ann", name))
    shop.publish()
    shop.read()
    shop.readings = before
    with pytest.raises(Stale, match="another reader"):
        shop.read()
    [decided] = shop.decide(claim("bob", name))
    assert (decided.status, decided.answer["version"]) == (REFUSED, 1)


@pytest.mark.parametrize("point", ["fold.locked", "fold.written", "fold.committed"])
def test_a_reader_that_dies_has_folded_each_event_once(
    postgresql: Settings, shop: Shop, point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States, coordinates and positions are stored together. The next reader begins with the stored positions."""
    name, dead, reader = new_name(), shop.readings[CLAIM], FoldReader(postgresql, COMMANDS, CLAIM)
    reader._types = TYPES
    shop.decide(claim("ann", name))
    shop.publish()
    with dying_at(point, tmp_path, monkeypatch):
        reader._fold(shop.connection, dead, shop.portion(CLAIM))
    stored = make_fold(shop.connection, CLAIM, COMMANDS.codes[CLAIM], dead.topic_id, {PARTITION: 0})
    [decided] = history.latest(shop.connection, 1, key=f"username:{name}")
    assert (stored.generation, stored.offsets) == (dead.generation, {PARTITION: point == "fold.committed"})
    assert decided.is_in_log == (point == "fold.committed")
    shop.readings[CLAIM] = stored
    shop.read()
    [decided] = history.latest(shop.connection, 1, key=f"username:{name}")
    [refused] = shop.decide(claim("bob", name))
    assert (decided.is_in_log, refused.status, refused.answer["version"]) == (True, REFUSED, 1)


def test_readers_of_two_folds_say_together_that_a_command_is_in_the_log(
    postgresql: Settings, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has stored the place of its event before it sees that of the other, unless one waits for the other."""
    (tmp_path / "register.py").write_text(REGISTER)
    shop.commands = catalogue.load(tmp_path)
    cart = new_name()
    shop.decide(request("register", commands=shop.commands, cart_id=cart, names=new_name()))
    shop.publish()
    with connect(postgresql, autocommit=True) as first, connect(postgresql, autocommit=True) as second:
        written, backend = threading.Event(), second.info.backend_pid

        def reach(point: str) -> None:
            if point == "fold.written" and not written.is_set():
                written.set()
                until(lambda: require_waiting_or_done(shop.connection, backend, read), 30, "the other reader")

        monkeypatch.setattr(fold_reader, "reach", reach)
        with ThreadPoolExecutor(2) as pool:
            read = list[Future[bool]]()
            before = pool.submit(shop.read_topic, first, "cart_event")
            assert written.wait(deadline(30))
            read.append(pool.submit(shop.read_topic, second, CLAIM))
            for each in (before, *read):
                each.result(deadline(60))
    [decided] = history.latest(shop.connection, 1, key=cart)
    assert (decided.is_in_log, decided.said) == (True, "log")


def require_waiting_or_done(connection: Connection, backend: int, read: list[Future[bool]]) -> None:
    is_done = bool(read) and read[0].done()
    if not is_done and not read_value(connection, "SELECT cardinality(pg_blocking_pids(%s))", (backend,)):
        raise ServiceDown("it reads")


def test_a_portion_with_an_accepted_event_is_awaited(shop: Shop) -> None:
    fields: dict[str, Any] = {"cart_id": new_name(), "visitor_id": "v", "product": "lamp", "quantity": 1}
    shop.bypass("cart_event", **fields, verb="added")
    assert not shop.read_topic(shop.connection, "cart_event")
    shop.decide(request("add_to_cart", **fields))
    shop.publish()
    assert shop.read_topic(shop.connection, "cart_event")


@pytest.mark.parametrize("is_hurried", [False, True])
@pytest.mark.parametrize(
    ("is_awaited", "count", "is_resting"), [(False, 3, True), (True, 3, False), (False, 1_000, False)]
)
def test_a_reader_rests_after_a_small_portion_that_no_command_waits_for(
    monkeypatch: pytest.MonkeyPatch, *, is_awaited: bool, count: int, is_resting: bool, is_hurried: bool
) -> None:
    """It rests only shortly once the relay has published accepted events of the type."""
    record = LogRecord(0, 7, datetime.now(UTC), b"{}")
    found, stopped = [Portion(CLAIM, [record] * count, {0: 8})], Resting()

    def next_portion(*_: object) -> Portion:
        if not found:
            stopped.set()
        return found.pop() if found else Portion(CLAIM, [], {})

    monkeypatch.setattr(fold_reader, "_portion", next_portion)
    monkeypatch.setattr(fold_reader, "require_current", lambda *_: None)
    monkeypatch.setattr(FoldReader, "_fold", lambda *_: is_awaited)
    nothing: Any = None
    reader = FoldReader(nothing, nothing, CLAIM)
    longer = reader._hurried = Resting()
    if is_hurried:
        reader.hurry()
    reader._follow(nothing, nothing, nothing, nothing, stopped)
    assert stopped.rests == ([0.05] if is_resting else [])
    assert longer.rests == ([0.2] if is_resting and not is_hurried else [])


class Resting(threading.Event):
    """An event that is not waited for; `rests` are the seconds that it should have been."""

    def __init__(self) -> None:
        super().__init__()
        self.rests: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.rests.append(timeout)
        return self.is_set()


def test_an_event_with_the_id_of_an_accepted_event_is_not_that_event(shop: Shop) -> None:
    """A producer that repeats the id does not make an accepted event count as published."""
    name = new_name()
    shop.decide(claim("ann", name))
    [row] = [each for each in shop.feed.next_rows(shop.published + 1) if each.topic == CLAIM]
    shop.bypass(CLAIM, **json.loads(row.value or b"") | {"holder": "eve"})
    shop.read()
    [decided] = history.latest(shop.connection, 1, key=f"username:{name}")
    assert not decided.is_in_log
    shop.publish()
    shop.read()
    [decided] = history.latest(shop.connection, 1, key=f"username:{name}")
    assert (decided.is_in_log, decided.said) == (True, "log")
    assert statuses_of(shop.decide(claim("bob", name))) == [REFUSED]


def test_a_record_that_is_no_valid_event_changes_no_state(shop: Shop) -> None:
    name = new_name()
    shop.bypass(CLAIM, name=f"username:{name}", verb=5, holder="eve")
    shop.topics[CLAIM] += [b"\xff", rb'{"event_id": "\ud800"}', rb'{"event_id": "\u0000"}', b'{"event_id": 5}', b"[]"]
    shop.read()
    assert statuses_of(shop.decide(claim("ann", name))) == [ACCEPTED]


def clock(minutes: int) -> type[datetime]:
    """A clock that is so many minutes ahead."""

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(minutes=minutes)

    return Shifted


WRONG_CLOCKS = {"the collector's clock is ahead": (command_log, 10), "Kafka's clock is behind": (decisions, -10)}


@pytest.mark.parametrize(("module", "minutes"), WRONG_CLOCKS.values(), ids=WRONG_CLOCKS)
def test_a_name_is_given_once_whatever_a_clock_says(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, module: ModuleType, minutes: int
) -> None:
    name = new_name()
    monkeypatch.setattr(module, "datetime", clock(minutes))
    shop.decide(claim("ann", name))
    shop.publish()
    shop.read()
    assert statuses_of(shop.decide(claim("bob", name))) == [REFUSED]


@pytest.mark.parametrize(("module", "minutes"), WRONG_CLOCKS.values(), ids=WRONG_CLOCKS)
def test_an_accepted_event_counts_in_the_log_or_its_loss_is_logged(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, module: ModuleType, minutes: int
) -> None:
    """The times of an event come from PostgreSQL. An event that Kafka gets five minutes earlier is not valid."""
    monkeypatch.setattr(module, "datetime", clock(minutes))
    fields: dict[str, Any] = {"cart_id": new_name(), "visitor_id": "v", "product": "lamp", "quantity": 1}
    [accepted] = shop.decide(request("add_to_cart", **fields))
    shop.publish()
    with caplog.at_level(logging.WARNING):
        shop.read()
    [event] = accepted.answer["events"]
    counts = module is command_log
    assert (event["event_id"] in caplog.text) != counts
    [again] = shop.decide(request("add_to_cart", **fields))
    assert again.answer["version"] == 1 + counts
