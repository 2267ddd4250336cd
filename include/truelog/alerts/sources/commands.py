"""Finds problems of commands: accepted events that wait for the log, and records that the states of keys lack.

A reader that fails again and again starts each time at the same positions. So it is found by these positions: they are
behind the end that the log had a minute ago.
"""

import time
from collections.abc import Iterator

from truelog.alerts.rules import Finding, Observation
from truelog.control.application import ARCHIVE
from truelog.lag import command_lag
from truelog.lag import history as lag_history
from truelog.lag.command_lag import FoldPlace, Waiting
from truelog.lag.history import ReaderPoll
from truelog.storage import db_snapshot
from truelog.support.durations import in_words
from truelog.support.settings import Settings

COMMAND_KINDS = ("commands_behind", "commands_waiting")
_WINDOW = 300.0  # seconds of polls


def observe(settings: Settings) -> Observation:
    """One finding for each event type whose states are behind, and one for all events that wait."""
    now = time.time()
    with db_snapshot.read_snapshot(settings) as connection:
        places, waiting = command_lag.fold_places(connection), command_lag.waiting(connection)
        polls = lag_history.since(connection, now - _WINDOW, ARCHIVE).get(ARCHIVE, [])
    old = [each for each in polls if now - each.at >= settings.alert_command_seconds]
    behind, unseen = _behind(places, old[-1] if old else None, now)
    return Observation((*behind, *_waiting(settings, waiting)), frozenset(unseen))


def _behind(places: dict[str, FoldPlace], poll: ReaderPoll | None, now: float) -> tuple[list[Finding], list[str]]:
    """The findings, and the keys about which the poll cannot tell. The archive's polls have the ends of all topics."""
    findings, unseen = list[Finding](), list[str]()
    for event, place in places.items():
        count = None if poll is None else command_lag.unread(event, place, poll)
        if poll is None or count is None:
            unseen.append(Finding("commands_behind", event, "").key)
        elif count:
            cause = f"the states of its keys lack {count:,} records that were in the log {in_words(now - poll.at)} ago"
            findings.append(Finding("commands_behind", event, cause))
    return findings, unseen


def _waiting(settings: Settings, waiting: Waiting) -> Iterator[Finding]:
    """Found before collectors refuse commands: at half of the most events, or after some time."""
    most = settings.command_waiting_events
    if 2 * waiting.events >= most or waiting.seconds >= settings.alert_command_seconds:
        cause = f"{waiting.events:,} of at most {most:,} events wait; the oldest is {in_words(waiting.seconds)} old"
        yield Finding("commands_waiting", "commands", cause)
