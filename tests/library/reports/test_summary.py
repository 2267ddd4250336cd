"""The state of the card on the Airflow home page, as a table of cases that each have one thing wrong."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from truelog.alerts.kind import KINDS, Severity
from truelog.alerts.rules import Alert
from truelog.control.view_status import BATCH_ONLY, STALLED, STARTING, STOPPED, UP_TO_DATE
from truelog.lag.report import LagRow
from truelog.lag.verdict import LagVerdict
from truelog.reports.summary import (
    Facts,
    PlatformState,
    WorstValue,
    card_state,
    problems,
    summarize_open_alerts,
    worst_value,
)
from truelog.reports.view import ViewEntry, ViewTable

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
CRITICAL, WARNING = (next(n for n, kind in KINDS.items() if kind.severity is each) for each in Severity)
VIEW = ViewEntry("orders", "", "stream", declared=1, state=UP_TO_DATE, reason="", table=ViewTable(1, NOON, 1, 1, 0))
NEW = replace(VIEW, declared=2)
DAILY = replace(VIEW, view="pairs", application="", batch_only=True, state=BATCH_ONLY, reason="the next build …")
IDLE = replace(VIEW, state=STOPPED, reason="its application is not running")


def alert(kind: str, subject: str = "orders", by: str | None = None) -> Alert:
    return Alert(kind, subject, "", NOON, NOON, acknowledged_at=NOON if by else None, acknowledged_by=by)


def lag(reader: str, verdict: LagVerdict = LagVerdict.OK) -> LagRow:
    return LagRow(reader, "archive" if reader == "archive" else "stream", verdict, 0, verdict.lower())


RUNNING = {"archive": "RUNNING", "stream": "RUNNING"}
FRESH = {name: lag(name) for name in ("archive", "orders")}
GOOD = Facts((), (), RUNNING, (VIEW,), {"orders": "EQUAL"}, FRESH)


NOT_MADE = replace(VIEW, state=STARTING, table=None)
FIRST = Facts(
    (),
    ("lag",),
    dict.fromkeys(RUNNING, "STARTING"),
    (NOT_MADE, replace(NOT_MADE, view="pairs")),
    {},
    {},
    first_start=True,
)
FIRST_PROBLEMS = [
    "alerts are not checked yet",
    "archive is starting",
    "stream is starting",
    "2 views are being created",
    "lag is not measured yet",
]


def application(name: str, state: str) -> Facts:
    return replace(GOOD, applications=RUNNING | {name: state})


def view(entry: ViewEntry) -> Facts:
    return replace(GOOD, views=(entry,))


def late(reader: str, verdict: LagVerdict) -> Facts:
    return replace(GOOD, lag=FRESH | {reader: lag(reader, verdict)})


@pytest.mark.parametrize(
    ("facts", "state", "said"),
    [
        (GOOD, PlatformState.ALL_GOOD, []),
        (replace(GOOD, answers={}), PlatformState.ALL_GOOD, []),
        (replace(GOOD, views=(VIEW, DAILY)), PlatformState.ALL_GOOD, []),  # it has no lag
        (view(replace(DAILY, state=STALLED)), PlatformState.CRITICAL, ["pairs is stalled"]),  # its file was refused
        (replace(GOOD, alerts=(alert(WARNING),)), PlatformState.WARNING, []),
        (replace(GOOD, alerts=(alert(WARNING), alert(CRITICAL, by="oncall"))), PlatformState.CRITICAL, []),
        (replace(GOOD, unwatched=("lag",)), PlatformState.UNKNOWN, ["alerts are not checked: lag"]),
        (
            replace(GOOD, unwatched=("lag",), alerts=(alert(WARNING),)),
            PlatformState.UNKNOWN,
            ["alerts are not checked: lag"],
        ),
        (application("archive", "DOWN"), PlatformState.CRITICAL, ["archive is down"]),
        (
            application("archive", "HUNG"),
            PlatformState.CRITICAL,
            ["archive is finishing no batches: it has hung or has nothing to read"],
        ),
        (application("stream", "STOPPED"), PlatformState.WARNING, ["stream is stopped on request"]),
        (application("stream", "STARTING"), PlatformState.WARNING, ["stream is starting"]),
        (application("stream", "NEW WORD"), PlatformState.UNKNOWN, ["stream is NEW WORD"]),
        (replace(application("stream", "DOWN"), views=(IDLE,)), PlatformState.CRITICAL, ["stream is down"]),
        (view(replace(VIEW, broken="SyntaxError")), PlatformState.CRITICAL, ["orders cannot be loaded"]),
        (view(replace(VIEW, state=STALLED)), PlatformState.CRITICAL, ["orders is stalled"]),
        (view(replace(VIEW, table=None)), PlatformState.WARNING, ["orders has no table yet"]),
        (
            replace(GOOD, views=tuple(replace(VIEW, view=f"v{n}", table=None) for n in range(7))),
            PlatformState.WARNING,
            ["7 views have no table yet: v0, v1, v2, v3, v4 and 2 more"],
        ),
        (replace(application("stream", "STARTING"), views=(IDLE,)), PlatformState.WARNING, ["stream is starting"]),
        (FIRST, PlatformState.STARTING, FIRST_PROBLEMS),
        (
            replace(FIRST, first_start=False),
            PlatformState.UNKNOWN,
            [
                "alerts are not checked: lag",
                "lag is unknown: archive",
                "archive is starting",
                "stream is starting",
                "2 views have no table yet: orders, pairs",
            ],
        ),
        (replace(FIRST, alerts=(alert(CRITICAL),)), PlatformState.CRITICAL, FIRST_PROBLEMS),
        (
            replace(FIRST, views=(replace(NOT_MADE, broken="SyntaxError"), NOT_MADE)),
            PlatformState.CRITICAL,
            [
                "orders cannot be loaded",
                "alerts are not checked yet",
                "archive is starting",
                "stream is starting",
                "1 view is being created",
                "lag is not measured yet",
            ],
        ),
        (view(NEW), PlatformState.WARNING, ["orders declares version 2, but its readers see version 1"]),
        (view(IDLE), PlatformState.UNKNOWN, ["orders may not be up to date: its application is not running"]),
        (replace(GOOD, views=()), PlatformState.UNKNOWN, ["the catalogue contains no views"]),
        (
            replace(GOOD, answers={"orders": "DIFFERENT"}),
            PlatformState.CRITICAL,
            ["orders was last found DIFFERENT from its rebuild"],
        ),
        (late("orders", LagVerdict.WARN), PlatformState.WARNING, ["orders: warn"]),
        (late("archive", LagVerdict.STALL), PlatformState.CRITICAL, ["archive: stall"]),
        (late("orders", LagVerdict.UNKNOWN), PlatformState.UNKNOWN, ["lag is unknown: orders"]),
        (replace(GOOD, lag={}), PlatformState.UNKNOWN, ["lag is unknown: archive, orders"]),
        (
            replace(late("orders", LagVerdict.STOP), applications={"stream": "DOWN"}),
            PlatformState.CRITICAL,
            ["stream is down"],
        ),
        (
            replace(late("orders", LagVerdict.FALLING_OFF), applications={"stream": "STOPPED"}),
            PlatformState.CRITICAL,
            ["orders: falling_off", "stream is stopped on request"],
        ),
    ],
)
def test_the_card_is_as_bad_as_the_worst_that_is_wrong(facts: Facts, state: PlatformState, said: Iterable[str]) -> None:
    assert card_state(facts) is state
    assert [each.text for each in problems(facts)] == said


def test_a_problem_leads_to_the_page_where_one_acts_on_it() -> None:
    wrong = replace(
        GOOD,
        unwatched=("lag",),
        applications={"archive": "DOWN"},
        views=(replace(VIEW, view="a b", state=STALLED),),
        answers={"a b": "DIFFERENT"},
        lag={"a b": lag("a b", LagVerdict.WARN)},
    )
    assert {each.page for each in problems(wrong)} == {
        "truelog/truelog/alerts",
        "truelog/truelog/streams",
        "truelog/truelog/view?name=a+b",
        "truelog/truelog/reconciliations?view=a+b",
        "truelog/truelog/lag?reader=a+b",
        "truelog/truelog/lag",
    }


def test_the_worst_alert_is_critical_and_nobody_works_on_it() -> None:
    found = summarize_open_alerts([alert(WARNING, "a"), alert(CRITICAL, "b", by="oncall"), alert(CRITICAL, "c")])
    assert (found.count, found.severity) == (3, Severity.CRITICAL)
    assert found.worst == KINDS[CRITICAL].meaning.format(subject="c")
    assert summarize_open_alerts([]).worst is None


@pytest.mark.parametrize(
    ("values", "worst"),
    [
        ({}, WorstValue(None, None)),
        ({"a": 1.0, "b": 2.0}, WorstValue("b", 2.0)),
        ({"a": None, "b": 2.0}, WorstValue("a", None)),
        ({"a": None, "b": 0.0}, WorstValue("a", None)),
        ({"a": 0.0, "b": 0}, WorstValue(None, 0)),
    ],
    ids=["none", "worst", "unknown", "unknown and zero", "zeros"],
)
def test_no_view_is_the_worst_if_each_value_is_zero(values: dict[str, float | None], worst: WorstValue) -> None:
    assert worst_value(values) == worst
