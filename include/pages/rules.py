"""Rules: pattern rules and stored searches, what they have found over time, and the notifications of it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from pages.answer import Answer
from pages.data import OF_VIEWS, Until, require
from truelog.exports import browse
from truelog.exports.query import refused_input
from truelog.lag.time_steps import TimeRange
from truelog.notifications import history as notification_history
from truelog.rules import matches, records, rulebook, searchbook
from truelog.rules.names import HITS, MATCHES
from truelog.rules.rulebook import KnownRule
from truelog.rules.searchbook import KnownSearch
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.errors import BadDeclaration, NotMade
from truelog.support.settings import Settings
from truelog.views.judged import Judged

router = APIRouter(prefix="/data", dependencies=OF_VIEWS)
_MOST = 200  # rules in a list
_LATEST = 50  # rows of a rule
Hours = Annotated[float, Query(gt=0, le=31 * 24)]


def _span(until: Until = None, hours: Hours = 24) -> TimeRange:
    return TimeRange(hours * 3600, until)


@router.get("/rules")
def all_rules(match: str = "") -> Answer:
    """The newest version of each pattern rule and of each search whose name contains this text."""
    settings, missing = Settings(), list[str]()
    with _snapshot(settings) as connection:
        patterns = _names(connection, MATCHES, lambda: matches.load(settings, MATCHES), match, missing)
        searches = _names(connection, HITS, lambda: matches.load_searches(settings, HITS), match, missing)
        return Answer(
            patterns=_newest_patterns(_patterns(settings, connection, patterns[:_MOST])),
            searches=_newest_searches(_searches(settings, connection, searches[:_MOST])),
            totals={"patterns": len(patterns), "searches": len(searches)},
            notifications=[each.as_dict() for each in notification_history.known(connection)],
            oversized=rulebook.count_oversized(connection, MATCHES),
            missing=missing,
        )


@router.get("/pattern")
def pattern(name: str, span: Annotated[TimeRange, Depends(_span)]) -> Answer:
    """The versions of a pattern rule, its matches over time, and its latest matches."""
    settings = Settings()
    with _snapshot(settings) as connection:
        versions = _patterns(settings, connection, [name])
        require(bool(versions), f"No rule {name!r}")
        return Answer(
            name=name,
            text=versions[-1].text,
            versions=[each.as_dict() for each in versions],
            course=rulebook.matches_over_time(connection, MATCHES, name, span),
            found=rulebook.latest_matches(connection, MATCHES, name, _LATEST),
            notifications=_told(connection, "match", name),
        )


@router.get("/search")
def search(name: str, span: Annotated[TimeRange, Depends(_span)]) -> Answer:
    """The versions of a stored search, its hits over time, and its latest hits."""
    settings = Settings()
    with _snapshot(settings) as connection:
        versions = _searches(settings, connection, [name])
        require(bool(versions), f"No search {name!r}")
        return Answer(
            name=name,
            text=versions[-1].query,
            versions=[each.as_dict() for each in versions],
            course=searchbook.hits_over_time(connection, HITS, name, span),
            found=searchbook.latest_hits(connection, HITS, name, _LATEST),
            notifications=_told(connection, "hit", name),
        )


@contextmanager
def _snapshot(settings: Settings) -> Iterator[Connection]:
    """A snapshot in which no statement takes long: a rule may have millions of rows, and pages ask again and again."""
    cure = "An administrator can run `truelog patterns show NAME` or `truelog searches show NAME`."
    with db_snapshot.read_snapshot(settings) as connection, refused_input(connection, browse.SECONDS, cure):
        yield connection


def _names(connection: Connection, name: str, load: Callable[[], Judged], part: str, missing: list[str]) -> list[str]:
    """The names of rules, or none and the reason: a platform may have rules without searches, or none yet."""
    try:
        return records.read_names(connection, name, load(), part)
    except (BadDeclaration, NotMade) as error:
        missing.append(str(error))
        return []


def _patterns(settings: Settings, connection: Connection, only: Collection[str]) -> list[KnownRule]:
    return rulebook.read_rules(connection, MATCHES, matches.load(settings, MATCHES), only) if only else []


def _searches(settings: Settings, connection: Connection, only: Collection[str]) -> list[KnownSearch]:
    return searchbook.read_searches(connection, HITS, matches.load_searches(settings, HITS), only) if only else []


def _newest_patterns(known: Sequence[KnownRule]) -> list[dict[str, Any]]:
    """The newest version of each rule. Its numbers of rows are those of all versions."""
    newest = {each.rule: each for each in known}
    counts: dict[str, dict[str, int]] = {}
    for each in known:
        total = counts.setdefault(each.rule, {})
        for outcome, number in each.outcomes.items():
            total[outcome] = total.get(outcome, 0) + number
    return [_entry(name, each, by=each.by, found=counts[name]) for name, each in newest.items()]


def _newest_searches(known: Sequence[KnownSearch]) -> list[dict[str, Any]]:
    newest = {each.search: each for each in known}
    counts: dict[str, int] = {}
    for each in known:
        counts[each.search] = counts.get(each.search, 0) + each.hits
    return [
        _entry(name, each, on=each.event_type, query=each.query, found={"found": counts[name]})
        for name, each in newest.items()
    ]


def _entry(name: str, newest: KnownRule | KnownSearch, **facts: Any) -> dict[str, Any]:
    return {"name": name, "version": newest.version, "begins": newest.begins, "ended": newest.ended, **facts}


def _told(connection: Connection, kind: str, subject: str) -> list[dict[str, Any]]:
    return [
        each.as_dict()
        for each in notification_history.known(connection)
        if (each.rule.kind, each.rule.subject) == (kind, subject)
    ]
