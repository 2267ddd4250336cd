"""One outage causes one alert: what follows from it is folded, and what must never be missed is not.

The laws are checked on random open alerts. The table lists individual cases, each with its reason.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from tests.library.alert_tables import application_of
from truelog.alerts.effects import BEGAN_TOGETHER, NEVER_FOLDED, OUTLIVES, RULES, TOGETHER, causes_of
from truelog.alerts.kind import KINDS, Severity
from truelog.alerts.rules import (
    Alert,
    Evaluation,
    EvaluationContext,
    Finding,
    Observation,
    Silence,
    Transition,
    evaluate_all,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SUBJECTS = ("archive", "stream", "log", "page_views", "cart")
REPEAT = timedelta(hours=4)


def opened(key: str, **changes: Any) -> Alert:
    kind, _, subject = key.partition("/")
    return replace(Alert(kind, subject, "", NOW - timedelta(minutes=9), NOW - timedelta(minutes=9)), **changes)


ago = st.integers(0, 600).map(lambda seconds: NOW - timedelta(seconds=seconds))
moments = st.one_of(st.none(), st.none(), ago)


@st.composite
def platforms(draw: st.DrawFn) -> list[Alert]:
    """Alerts of any kinds: pending, open, known to receivers, absent for some time, or resolved."""
    keys = draw(
        st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.sampled_from(SUBJECTS)), unique=True, max_size=25)
    )
    found = []
    for kind, subject in keys:
        gone = draw(moments)
        resolved = gone if gone and draw(st.booleans()) else None
        found.append(
            opened(
                f"{kind}/{subject}",
                found_at=draw(ago),
                told_at=draw(moments),
                gone_at=gone,
                resolved_at=resolved,
            )
        )
    return found


seeded = hypothesis(derandomize=True, database=None, deadline=None, max_examples=300)


@seeded
@given(platforms())
def test_every_folded_alert_leads_to_a_cause_that_is_open_and_not_folded(alerts: list[Alert]) -> None:
    causes, by_key = causes_of(alerts, NOW, application_of), {each.key: each for each in alerts}
    for effect, cause in causes.items():
        assert by_key[effect].resolved_at is None
        assert cause not in causes
        assert by_key[cause].opened_at is not None
        gone = by_key[cause].gone_at
        assert gone is None or NOW - gone < OUTLIVES


@seeded
@given(platforms())
def test_no_alert_is_folded_that_is_known_or_means_a_loss_or_is_worse_than_its_cause(alerts: list[Alert]) -> None:
    by_key = {each.key: each for each in alerts}
    for effect, cause in causes_of(alerts, NOW, application_of).items():
        assert by_key[effect].told_at is None
        assert by_key[effect].kind not in NEVER_FOLDED
        if by_key[cause].definition.severity is Severity.WARNING:
            assert by_key[effect].definition.severity is Severity.WARNING


@seeded
@given(platforms())
def test_the_order_of_the_alerts_decides_only_between_causes(alerts: list[Alert]) -> None:
    assert set(causes_of(alerts, NOW, application_of)) == set(causes_of(alerts[::-1], NOW, application_of))


@seeded
@given(platforms())
def test_without_its_cause_nothing_is_folded_after_five_minutes(alerts: list[Alert]) -> None:
    ended = [replace(each, gone_at=each.gone_at or NOW) for each in alerts]
    assert causes_of(ended, NOW + OUTLIVES, application_of) == {}


def followers() -> dict[str, set[str]]:
    """For each kind, the kinds that are folded into it or into one of its effects."""
    effects = {kind: {rule.effect for rule in RULES if rule.cause == kind} for kind in KINDS}
    found = dict[str, set[str]]()
    for kind in KINDS:
        reached, ahead = set[str](), set(effects[kind])
        while ahead:
            reached |= ahead
            ahead = {after for each in ahead for after in effects[each]} - reached
        found[kind] = reached
    return found


def test_the_table_names_known_kinds_and_has_no_cycle() -> None:
    assert {rule.cause for rule in RULES} | {rule.effect for rule in RULES} | NEVER_FOLDED <= KINDS.keys()
    assert NEVER_FOLDED.isdisjoint(rule.effect for rule in RULES)
    assert KINDS.keys() - NEVER_FOLDED >= TOGETHER
    assert [kind for kind, reached in followers().items() if kind in reached] == []


def test_the_page_about_lag_says_into_which_outside_causes_a_stalled_reader_is_folded() -> None:
    page = (Path(__file__).parents[2] / "docs" / "lag.md").read_text()
    rows = page.partition("| is the effect on readers folded? |\n")[2].partition("\n\n")[0].splitlines()[1:]
    said = {
        kind: folded.startswith("yes")
        for _, where, folded in (row.strip("| ").split(" | ") for row in rows)
        for kind in re.findall(r"\(runbooks/(\w+)\.md\)", where)
    }
    assert {kind for kind, folded in said.items() if folded} == {k for k, f in followers().items() if "stalled" in f}


CASES: list[tuple[str, str, str, bool]] = [
    ("a dead stream stalls its views", "application_down/stream", "stalled/page_views", True),
    ("but not the archive", "application_down/stream", "stalled/archive", False),
    ("a dead archive does not stall a view", "application_down/archive", "stalled/page_views", False),
    ("a dead archive leaves comparisons undecided", "application_down/archive", "reconcile_inconclusive/cart", True),
    ("a late stream does not", "lagging/stream", "reconcile_inconclusive/cart", False),
    (
        "an application that dies again and again is one incident",
        "application_down/stream",
        "application_restarting/stream",
        True,
    ),
    ("another application is another incident", "application_down/stream", "application_restarting/archive", False),
    ("two dead applications are two incidents", "application_down/stream", "application_down/archive", False),
    ("without Kafka nothing advances", "no_input/log", "stalled/cart", True),
    ("without Kafka lag is unknown", "no_input/log", "lag_unknown/log", True),
    ("a held clock sends no ticks", "clock_jumped/log", "no_input/log", True),
    ("a lost record is never folded", "application_down/stream", "retention_risk/page_views", False),
    ("nor is a rewind", "no_input/log", "positions_rewound/page_views", False),
    ("nor a corrupt archive", "application_down/archive", "archive_corrupt/archive", False),
    ("nor a wrong view", "application_down/stream", "view_different/page_views", False),
    ("a wrong view has no new certificate", "view_different/cart", "certificate_stale/cart", True),
    ("but another view has", "view_different/cart", "certificate_stale/page_views", False),
]


@pytest.mark.parametrize(("cause", "effect", "folded"), [pytest.param(*case, id=why) for why, *case in CASES])
def test_case(cause: str, effect: str, folded: bool) -> None:
    expected = {effect: cause} if folded else {}
    assert causes_of([opened(cause), opened(effect)], NOW, application_of) == expected


@pytest.mark.parametrize(
    ("first", "second", "after", "folded"),
    [
        ("stalled/cart", "stalled/page_views", timedelta(), True),
        ("stalled/page_views", "stalled/cart", BEGAN_TOGETHER, True),
        ("stalled/page_views", "stalled/cart", BEGAN_TOGETHER + timedelta(seconds=1), False),
        ("stalled/archive", "stalled/cart", timedelta(), False),  # of another application
    ],
)
def test_views_of_an_application_that_stall_together_are_one_incident(
    first: str, second: str, after: timedelta, folded: bool
) -> None:
    """The view that stalled first causes the notification."""
    cause = opened(first)
    effect = opened(second, found_at=cause.found_at + after)
    assert causes_of([effect, cause], NOW, application_of) == ({second: first} if folded else {})


def test_a_silence_of_one_view_does_not_hide_the_others() -> None:
    """The first view that is not silenced causes the notification."""
    views = [opened(f"stalled/{view}") for view in ("cart", "page_views", "post")]
    silence = Silence("stalled/cart", NOW + timedelta(days=1))
    assert causes_of(views, NOW, application_of, [silence]) == {"stalled/post": "stalled/page_views"}
    over = Silence("stalled/cart", NOW)
    assert causes_of(views, NOW, application_of, [over]) == dict.fromkeys(
        ("stalled/page_views", "stalled/post"), "stalled/cart"
    )


def test_a_chain_leads_to_its_first_cause() -> None:
    alerts = [opened(key) for key in ("stalled/cart", "no_input/log", "clock_jumped/log")]
    assert causes_of(alerts, NOW, application_of) == dict.fromkeys(("stalled/cart", "no_input/log"), "clock_jumped/log")


def notified(cause: Alert, now: datetime, known: list[Alert], *subjects: str) -> list[Evaluation]:
    """Evaluate a look of the `stalled` source, which found these views, while another source's alert is the cause."""
    context = EvaluationContext(now, REPEAT, fold=partial(_fold, cause, now))
    found = Observation(tuple(Finding("stalled", subject, "no batch") for subject in subjects))
    return list(evaluate_all(known, found, context))


def _fold(cause: Alert, now: datetime, own: Sequence[Alert]) -> dict[str, str]:
    return causes_of([cause, *own], now, application_of)


def test_an_effect_that_outlives_its_cause_by_five_minutes_notifies_by_itself() -> None:
    """The cause ends after a minute. The effect lasts."""
    cause, known, sent = opened("application_down/stream"), list[Alert](), []
    for second in range(0, 600, 20):
        ended = replace(cause, gone_at=NOW + timedelta(seconds=60) if second >= 60 else None)
        [evaluation] = notified(ended, NOW + timedelta(seconds=second), known, "cart")
        known = [evaluation.alert]
        sent += [(second, evaluation.notify)] if evaluation.notify else []
    assert sent == [(60 + OUTLIVES.total_seconds(), Transition.OPEN)]


def test_an_effect_that_ends_with_its_cause_is_never_sent() -> None:
    cause, known, sent = opened("application_down/stream"), list[Alert](), list[Transition]()
    for second, subjects in ((0, ["cart"]), (20, []), (40, []), (60, [])):
        evaluations = notified(cause, NOW + timedelta(seconds=second), known, *subjects)
        known = [each.alert for each in evaluations if each.alert.resolved_at is None]
        sent += [each.notify for each in evaluations if each.notify]
    assert (known, sent) == ([], [])
