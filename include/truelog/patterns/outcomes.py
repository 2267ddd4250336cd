"""Outcomes: what the versions of rules find among the events of one key, as rows.

An event is late if it reached the log later after its time than the rule allows. The rule is searched twice: among the
events in time, and among all events. A match that only late events make is `late`; a match that late events undo stays
as `retracted`. So the outcome of a match depends on the events alone, not on their order of arrival.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truelog.patterns import matcher
from truelog.patterns.matcher import Budget, Event, Match, Searched, TooCostly
from truelog.patterns.rule import Rule
from truelog.patterns.versions import Version

FOUND, LATE, RETRACTED = "found", "late", "retracted"
TOO_COSTLY = "too costly"  # the search exceeded its budget, so the key has no matches of the version


@dataclass(frozen=True)
class Outcome:
    """A match of a version of a rule, or that its search was too costly. Times are in microseconds.

    settled_after: the match is shown when the log's clock has passed this time; None: at once.
    events: the coordinates of the events with their steps.
    shown: the columns that the rule shows.
    """

    match_id: str
    rule: str
    version: int
    outcome: str
    first_time: int | None = None
    last_time: int | None = None
    settled_after: int | None = None
    events: Sequence[Mapping[str, Any]] = ()
    shown: Mapping[str, Any] | None = None


def outcomes(versions: Iterable[Version[Rule]], entity: str, events: Sequence[Event]) -> list[Outcome]:
    """What the versions find among the events of one key of this entity."""
    ordered = sorted(events)
    return [
        outcome
        for version in versions
        if version.rule.entity == entity
        for outcome in of_version(version, [each for each in ordered if each.topic in version.rule.event_types])
    ]


def of_version(version: Version[Rule], events: Sequence[Event]) -> list[Outcome]:
    """What one version finds among events in order."""
    rule = version.rule
    begun = [each for each in events if version.begins_before(each)]
    rows = [each for each in begun if each.topic in rule.row_types and version.judges(each)]
    every = Searched(rows, begun)
    return of_searches(version, every, in_time(rule, every))


def in_time(rule: Rule, every: Searched) -> Searched | None:
    """The search without late events; None if no event is late."""
    begun = [each for each in every.every if not is_late(rule, each)]
    if len(begun) == len(every.every):
        return None
    return Searched([each for each in every.rows if not is_late(rule, each)], begun)


def is_late(rule: Rule, event: Event) -> bool:
    return event.logged_at - event.at > rule.late_after


def of_searches(version: Version[Rule], every: Searched, timely: Searched | None) -> list[Outcome]:
    """What one version finds, given the search of all events, and the search of those in time if others are late."""
    rule, budget = version.rule, Budget.of(every.every)
    try:
        first = _matches(version, every if timely is None else timely, budget)
        second = [] if timely is None else _matches(version, every, budget)
    except TooCostly:
        if every.begins is not None:  # a bound of the cost may be too high
            return of_searches(version, _whole(every), timely and _whole(timely))
        return [Outcome(_identity(version, ()), rule.name, version.number, TOO_COSTLY)]
    alone = FOUND if timely is None else RETRACTED
    found = {_identity(version, _coordinates_of(each)): (each, alone) for each in first}
    for match in second:
        identity = _identity(version, _coordinates_of(match))
        found[identity] = (match, FOUND if identity in found else LATE)
    shown = (
        Outcome(
            identity,
            rule.name,
            version.number,
            outcome,
            match.first.at,
            match.last.at,
            match.settled_after,
            [_coordinates(event) | {"step": step} for event, step in match.events],
            match.shown,
        )
        for identity, (match, outcome) in found.items()
    )
    return sorted(shown, key=lambda each: each.match_id)


def _whole(searched: Searched) -> Searched:
    """The search in which a match may begin with any row."""
    return Searched(searched.rows, searched.every)


def _matches(version: Version[Rule], searched: Searched, budget: Budget) -> list[Match]:
    """The matches that are settled before the version ends. A version that has ended sees no later time."""
    found = matcher.search(version.rule, searched, budget)
    ended = version.ended_at
    return [each for each in found if ended is None or each.settled_after is None or each.settled_after < ended]


def _identity(version: Version[Rule], coordinates: Iterable[tuple[str, int, int]]) -> str:
    """The id of a match: a hash of the rule, the version and the coordinates of the events."""
    document = [version.rule.name, version.number, *map(list, coordinates)]
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()[:32]


def _coordinates_of(match: Match) -> list[tuple[str, int, int]]:
    return [(event.topic, event.partition, event.offset) for event, _ in match.events]


def _coordinates(event: Event) -> dict[str, Any]:
    return {"topic": event.topic, "partition": event.partition, "offset": event.offset}
