"""One incident causes one alert, whatever a source finds, misses or cannot see, and whatever silences exist.

The laws are checked on random look histories. The table lists individual cases, each with its reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from truelog.alerts.kind import KINDS
from truelog.alerts.rules import Alert, EvaluationContext, Finding, Observation, Silence, Transition, evaluate_all

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REPEAT = timedelta(minutes=10)
AT_ONCE, HELD = "application_down", "view_different"
KEYS = {f"{kind}/{subject}": (kind, subject) for kind in (AT_ONCE, HELD) for subject in ("one", "two")}
ALL = Silence("*", NOW + timedelta(days=1))


@dataclass(frozen=True)
class Look:
    """One look at all keys, `after` seconds after the previous look: the keys with a problem, and the unseen keys."""

    after: float
    wrong: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    blind: bool = False
    acknowledges: frozenset[str] = frozenset()  # before the look
    silence: Silence | None = None  # from this look on

    @property
    def observation(self) -> Observation:
        findings = () if self.blind else tuple(Finding(*KEYS[key], "it fails") for key in sorted(self.wrong))
        return Observation(findings, self.unseen, self.blind)


@dataclass
class Life:
    """The alerts after a series of looks, and every notification with its key, time and alert."""

    now: datetime = NOW
    known: dict[str, Alert] = field(default_factory=dict)
    resolved: list[Alert] = field(default_factory=list)
    notifications: list[tuple[str, Transition, datetime, Alert]] = field(default_factory=list)
    silences: tuple[Silence, ...] = ()

    def live(self, looks: Sequence[Look]) -> "Life":
        for look in looks:
            self.look(look)
        return self

    def look(self, look: Look) -> None:
        self.now += timedelta(seconds=look.after)
        self.silences += (look.silence,) if look.silence else ()
        for key in look.acknowledges & self.known.keys():
            self.known[key] = replace(self.known[key], acknowledged_at=self.now, acknowledged_by="somebody")
        for evaluation in evaluate_all(
            self.known.values(), look.observation, EvaluationContext(self.now, REPEAT, self.silences)
        ):
            key = evaluation.alert.key
            self.known.pop(key, None)
            if evaluation.notify:
                self.notifications.append((key, evaluation.notify, self.now, evaluation.alert))
            if evaluation.alert.resolved_at:
                self.resolved.append(evaluation.alert)
            elif not evaluation.forget:
                self.known[key] = evaluation.alert

    def transitions(self, key: str) -> list[Transition]:
        return [transition for notified, transition, *_ in self.notifications if notified == key]


subsets = st.frozensets(st.sampled_from(sorted(KEYS)))
rare = st.one_of(st.just(frozenset[str]()), st.just(frozenset[str]()), subsets)
silences = st.builds(
    Silence,
    st.sampled_from(["application_down/*", "*/one", "view_different/two", "*"]),
    st.integers(0, 7200).map(lambda seconds: NOW + timedelta(seconds=seconds)),
)
looks = st.builds(
    Look,
    after=st.sampled_from([1.0, 5.0, 30.0, 301.0, 900.0]),
    wrong=subsets,
    unseen=rare,
    blind=st.sampled_from([False, False, False, True]),
    acknowledges=rare,
    silence=st.one_of(st.none(), st.none(), st.none(), silences),
)
histories = st.lists(looks, min_size=1, max_size=40)
seeded = hypothesis(derandomize=True, database=None, deadline=None, max_examples=120)


@seeded
@given(histories)
def test_an_incident_is_announced_once_when_it_opens_and_once_when_it_is_resolved(
    history: list[Look],
) -> None:
    life = Life().live(history)
    for key in KEYS:
        transitions = life.transitions(key)
        ends = [each for each in transitions if each is not Transition.REMINDER]
        assert ends == [Transition.OPEN if n % 2 == 0 else Transition.RESOLVED for n in range(len(ends))]
        assert not transitions or transitions[0] is Transition.OPEN
        assert all(after is Transition.OPEN for before, after in pairwise(transitions) if before is Transition.RESOLVED)
        still_open = key in life.known and life.known[key].told_at is not None
        assert (len(ends) % 2 == 1) == still_open


@seeded
@given(histories)
def test_a_silenced_or_acknowledged_alert_causes_no_new_notification_and_reminders_keep_their_interval(
    history: list[Look],
) -> None:
    life = Life().live(history)
    last: dict[str, datetime] = {}
    for key, transition, at, alert in life.notifications:
        if transition is not Transition.RESOLVED:
            assert alert.acknowledged_at is None
            covering = [s for s in life.silences if s.covers(key, at)]
            assert not [look for look in _until(history, at) if look.silence in covering]
        if transition is Transition.REMINDER:
            assert at - last[key] >= REPEAT
        last[key] = at


def _until(history: Sequence[Look], moment: datetime) -> list[Look]:
    """The looks up to `moment`."""
    now, found = NOW, []
    for look in history:
        now += timedelta(seconds=look.after)
        if now <= moment:
            found.append(look)
    return found


@seeded
@given(histories)
def test_an_alert_is_resolved_only_after_looks_that_saw_its_absence(history: list[Look]) -> None:
    """The last looks before the resolution saw the key, found no problem and spanned its kind's `resolve_after`."""
    life = Life().live(history)
    for alert in life.resolved:
        assert alert.gone_at is not None
        assert alert.resolved_at is not None
        assert alert.opened_at is not None
        assert alert.resolved_at - alert.gone_at >= KINDS[alert.kind].resolve_after
        moments = [look for look in _until(history, alert.resolved_at) if look not in _before(history, alert.gone_at)]
        assert moments
        for look in moments:
            assert look.observation.sees(alert.key)
            assert alert.key not in look.wrong


def _before(history: Sequence[Look], moment: datetime) -> list[Look]:
    return _until(history, moment - timedelta(microseconds=1))


@seeded
@given(histories)
def test_every_announced_incident_is_announced_as_resolved_in_the_end(history: list[Look]) -> None:
    life = Life().live([*history, Look(1), Look(900)])
    assert life.known == {}
    for key in KEYS:
        assert life.transitions(key).count(Transition.OPEN) == life.transitions(key).count(Transition.RESOLVED)


@seeded
@given(histories)
def test_a_lasting_problem_is_announced_unless_it_is_silenced(history: list[Look]) -> None:
    unsilenced = [replace(look, silence=None, acknowledges=frozenset()) for look in history]
    lasting = frozenset(KEYS)
    life = Life().live([*unsilenced, Look(1, lasting), Look(301, lasting)])
    assert set(life.known) == lasting
    assert all(alert.told_at for alert in life.known.values())


ONE, LATER = f"{AT_ONCE}/one", f"{HELD}/one"
WRONG = frozenset({ONE})

CASES: list[tuple[str, str, list[Look], list[Transition]]] = [
    ("a problem is announced at once", ONE, [Look(1, WRONG)], [Transition.OPEN]),
    ("a problem that continues is not announced again", ONE, [Look(1, WRONG)] * 9, [Transition.OPEN]),
    ("until a reminder is due", ONE, [Look(1, WRONG), Look(600, WRONG)], [Transition.OPEN, Transition.REMINDER]),
    ("a flickering problem is one incident", ONE, [Look(5, WRONG), Look(5)] * 9, [Transition.OPEN]),
    (
        "a problem that is absent for long enough is resolved",
        ONE,
        [Look(1, WRONG), Look(1), Look(20)],
        [Transition.OPEN, Transition.RESOLVED],
    ),
    ("but not earlier: a restart may fail", ONE, [Look(1, WRONG), Look(1), Look(19)], [Transition.OPEN]),
    (
        "one look after a long time proves no absence: the absence begins with that look",
        ONE,
        [Look(1, WRONG), Look(900)],
        [Transition.OPEN],
    ),
    (
        "a problem that comes back is a new incident",
        ONE,
        [Look(1, WRONG), Look(1), Look(20), Look(1, WRONG)],
        [Transition.OPEN, Transition.RESOLVED, Transition.OPEN],
    ),
    (
        "a blind source resolves nothing",
        ONE,
        [Look(1, WRONG), *[Look(900, blind=True)] * 3],
        [Transition.OPEN, *[Transition.REMINDER] * 3],
    ),
    (
        "an unseen key is not resolved",
        ONE,
        [Look(1, WRONG), *[Look(60, unseen=WRONG)] * 3],
        [Transition.OPEN],
    ),
    (
        "blindness interrupts an absence",
        ONE,
        [Look(1, WRONG), Look(1), Look(15, blind=True), Look(15), Look(15)],
        [Transition.OPEN],
    ),
    ("a problem that ends before `open_after` is not announced", LATER, [Look(1, frozenset({LATER})), Look(299)], []),
    (
        "a problem that lasts for `open_after` is announced",
        LATER,
        [Look(1, frozenset({LATER})), Look(300, frozenset({LATER}))],
        [Transition.OPEN],
    ),
    ("a silence holds back the announcement", ONE, [Look(1, WRONG, silence=ALL), Look(900, WRONG)], []),
    ("an incident within a silence is never announced", ONE, [Look(1, WRONG, silence=ALL), Look(1), Look(60)], []),
    (
        "an incident that outlasts a silence is announced when the silence ends",
        ONE,
        [Look(1, WRONG, silence=Silence("application_down/*", NOW + timedelta(seconds=60))), Look(60, WRONG)],
        [Transition.OPEN],
    ),
    (
        "a silence for other keys has no effect",
        ONE,
        [Look(1, WRONG, silence=replace(ALL, pattern="*/two"))],
        [Transition.OPEN],
    ),
    (
        "a resolution is announced even in a silence",
        ONE,
        [Look(1, WRONG), Look(900, WRONG, silence=ALL), Look(1), Look(20)],
        [Transition.OPEN, Transition.RESOLVED],
    ),
    (
        "an acknowledgement ends the reminders but not the incident",
        ONE,
        [Look(1, WRONG), Look(900, WRONG, acknowledges=WRONG), Look(1), Look(20)],
        [Transition.OPEN, Transition.RESOLVED],
    ),
    (
        "an acknowledgement does not cover the next incident",
        ONE,
        [Look(1, WRONG), Look(1, WRONG, acknowledges=WRONG), Look(1), Look(20), Look(1, WRONG)],
        [Transition.OPEN, Transition.RESOLVED, Transition.OPEN],
    ),
]


@pytest.mark.parametrize(("key", "history", "expected"), [pytest.param(*case, id=why) for why, *case in CASES])
def test_case(key: str, history: list[Look], expected: list[Transition]) -> None:
    assert Life().live(history).transitions(key) == expected


def test_a_newer_cause_is_stored_without_a_notification() -> None:
    def observed(cause: str) -> Observation:
        return Observation((Finding(AT_ONCE, "one", cause),))

    [first] = evaluate_all([], observed("it died"), EvaluationContext(NOW, REPEAT))
    [second] = evaluate_all([first.alert], observed("it hangs"), EvaluationContext(NOW + timedelta(seconds=1), REPEAT))
    assert (second.alert.cause, second.alert.found_at, second.notify) == ("it hangs", NOW, None)
