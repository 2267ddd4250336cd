"""What the source of alerts about commands finds, in a database with a real command log."""

import time
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.builders.commands import accepted_ago
from tests.library.commands.decisions import FOLDED, PARTITION, Shop, claim
from tests.library.commands.made_fold import make_fold
from truelog.alerts.kind import KINDS
from truelog.alerts.rules import Observation
from truelog.alerts.sources import commands
from truelog.commands.claims import CLAIM
from truelog.control import log_cuts
from truelog.control.application import ARCHIVE
from truelog.control.command_states import withdraw
from truelog.lag import history as lag_history
from truelog.lag.history import ReaderPoll
from truelog.lag.verdict import Sample
from truelog.log.leader_epochs import Cut
from truelog.storage.database import Connection
from truelog.support.settings import Settings

UNSEEN = frozenset(f"commands_behind/{name}" for name in FOLDED)


@pytest.fixture
def shop(connection: Connection) -> Shop:
    return Shop(connection)


def poll(shop: Shop, seconds: float, **changed: object) -> None:
    """The archive was polled some seconds ago, and the log ended where it ends now."""
    at = time.time() - seconds
    samples = {
        (name, PARTITION): replace(
            Sample(at=at, end=len(shop.topics[name]), topic_id=shop.readings[name].topic_id),
            **changed,  # type: ignore[arg-type]
        )
        for name in FOLDED
    }
    lag_history.append(shop.connection, [ReaderPoll(ARCHIVE, 1, at, None, samples)], 600)


def keys(observation: Observation) -> set[str]:
    assert {finding.kind for finding in observation.findings} <= KINDS.keys()
    return {finding.key for finding in observation.findings}


def test_records_that_the_reader_does_not_read_are_found(postgresql: Settings, shop: Shop) -> None:
    """Reading ends where it began, as it does for a reader that fails again and again."""
    for person in ("ann", "bob"):
        shop.bypass(CLAIM, name="username:ann", verb="claimed", holder=person)
    poll(shop, 10)
    found = commands.observe(postgresql)
    assert (keys(found), found.unseen) == (set(), UNSEEN)  # no old poll
    poll(shop, 100)
    found = commands.observe(postgresql)
    assert (keys(found), found.unseen) == ({"commands_behind/claim"}, frozenset())
    assert found.findings[0].cause.startswith("the states of its keys lack 2 records that were in the log ")
    withdraw(shop.connection, [CLAIM])
    found = commands.observe(postgresql)
    assert (keys(found), found.unseen) == (set(), frozenset({"commands_behind/claim"}))  # an open alert stays
    topic_id = shop.readings[CLAIM].topic_id
    shop.readings[CLAIM] = make_fold(shop.connection, CLAIM, shop.commands.codes[CLAIM], topic_id, {PARTITION: 0})
    shop.read()
    assert commands.observe(postgresql) == Observation()


@pytest.mark.parametrize("changed", [{"blind": "Kafka is down"}, {"topic_id": "another"}])
def test_a_poll_that_cannot_tell_resolves_nothing(postgresql: Settings, shop: Shop, changed: dict[str, object]) -> None:
    poll(shop, 90, **changed)
    assert commands.observe(postgresql).unseen == UNSEEN


def test_records_of_an_open_transaction_are_not_missing(postgresql: Settings, shop: Shop) -> None:
    shop.bypass(CLAIM, name="username:ann", verb="claimed", holder="ann")
    poll(shop, 80, committed_end=0)
    assert commands.observe(postgresql) == Observation()
    poll(shop, 70, committed_end=1)
    assert keys(commands.observe(postgresql)) == {"commands_behind/claim"}


def test_events_that_wait_are_found_before_commands_are_refused(postgresql: Settings, shop: Shop) -> None:
    poll(shop, 60)
    few = postgresql.model_copy(update={"command_waiting_events": 4})
    shop.decide(claim("ann", "first"))
    assert commands.observe(few) == Observation()
    shop.decide(claim("ann", "second"))
    assert keys(commands.observe(few)) == {"commands_waiting/commands"}
    assert commands.observe(postgresql) == Observation()
    accepted_ago(shop.connection, timedelta(minutes=2))
    [found] = commands.observe(postgresql).findings
    assert found.cause == "2 of at most 100,000 events wait; the oldest is 2 min old"
    shop.publish()
    shop.read()
    assert commands.observe(few) == Observation()


def test_an_event_that_a_cut_has_lost_is_not_found_for_ever(postgresql: Settings, shop: Shop) -> None:
    """Nothing brings it into the log. Events that are accepted after the cut was accepted are found as before."""
    at_once = postgresql.model_copy(update={"alert_command_seconds": 1e-6})
    poll(shop, 60)
    shop.decide(claim("ann", "lost"))
    assert keys(commands.observe(at_once)) == {"commands_waiting/commands"}
    topic_id = shop.readings[CLAIM].topic_id
    log_cuts.record_cuts(shop.connection, [Cut(CLAIM, topic_id, PARTITION, 0, 0, 0)], "a test")
    assert keys(commands.observe(at_once)) == {"commands_waiting/commands"}
    [cut] = log_cuts.open_cuts(shop.connection)
    log_cuts.accept(shop.connection, cut, 0, "a test")
    assert keys(commands.observe(at_once)) == set()
    shop.readings[CLAIM] = make_fold(shop.connection, CLAIM, shop.commands.codes[CLAIM], topic_id, {PARTITION: 0})
    shop.decide(claim("bob", "later"))
    assert keys(commands.observe(at_once)) == {"commands_waiting/commands"}
