"""One incident, one alert: whatever a source finds, misses or cannot see, and whoever acknowledges or wants silence.

The laws hold of random histories of looks; the table names single cases with their reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from truelog.alerts.alert import Alert, EvaluationContext, Finding, Observation, Silence, Transition, evaluate_all
from truelog.alerts.alert_kind import KINDS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REPEAT = timedelta(minutes=10)
AT_ONCE, HELD = "application_down", "view_different"
KEYS = {f"{kind}/{subject}": (kind, subject) for kind in (AT_ONCE, HELD) for subject in ("one", "two")}
ALL = Silence("*", NOW + timedelta(days=1))


@dataclass(frozen=True)
class Look:
    """One look at all keys, so many seconds after the one before; by key what is wrong, and what nobody can see."""

    after: float
    wrong: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    blind: bool = False
    acknowledges: frozenset[str] = frozenset()  # before it
    silence: Silence | None = None  # from then on

    @property
    def sight(self) -> Observation:
        findings = () if self.blind else tuple(Finding(*KEYS[key], "it is wrong") for key in sorted(self.wrong))
        return Observation(findings, self.unseen, self.blind)


@dataclass
class Life:
    """What became of the alerts, and what was told of each key, by when, silenced or not at that moment."""

    now: datetime = NOW
    known: dict[str, Alert] = field(default_factory=dict)
    resolved: list[Alert] = field(default_factory=list)
    told: list[tuple[str, Transition, datetime, Alert]] = field(default_factory=list)
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
        for step in evaluate_all(self.known.values(), look.sight, EvaluationContext(self.now, REPEAT, self.silences)):
            key = step.alert.key
            self.known.pop(key, None)
            if step.says:
                self.told.append((key, step.says, self.now, step.alert))
            if step.alert.resolved_at:
                self.resolved.append(step.alert)
            elif not step.forget:
                self.known[key] = step.alert

    def says(self, key: str) -> list[Transition]:
        return [says for of, says, *_ in self.told if of == key]


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
def test_of_each_incident_receivers_are_told_once_that_it_is_open_and_once_that_it_is_resolved(
    history: list[Look],
) -> None:
    life = Life().live(history)
    for key in KEYS:
        said = [says for says in life.says(key) if says is not Transition.AGAIN]
        assert said == [Transition.OPEN if n % 2 == 0 else Transition.RESOLVED for n in range(len(said))]
        told = life.says(key)
        assert not told or told[0] is Transition.OPEN
        assert all(after is Transition.OPEN for before, after in pairwise(told) if before is Transition.RESOLVED)
        open_still = key in life.known and life.known[key].told_at is not None
        assert (len(said) % 2 == 1) == open_still


@seeded
@given(histories)
def test_nothing_new_is_told_of_what_is_silenced_or_acknowledged_and_nothing_too_often(history: list[Look]) -> None:
    life = Life().live(history)
    last: dict[str, datetime] = {}
    for key, says, at, alert in life.told:
        if says is not Transition.RESOLVED:
            assert alert.acknowledged_at is None
            covering = [s for s in life.silences if s.covers(key, at)]
            begun = [look for look in _until(history, at) if look.silence in covering]
            assert not begun
        if says is Transition.AGAIN:
            assert at - last[key] >= REPEAT
        last[key] = at


def _until(history: Sequence[Look], moment: datetime) -> list[Look]:
    """The looks up to that moment."""
    now, found = NOW, []
    for look in history:
        now += timedelta(seconds=look.after)
        if now <= moment:
            found.append(look)
    return found


@seeded
@given(histories)
def test_an_alert_is_resolved_only_after_it_was_seen_to_be_gone(history: list[Look]) -> None:
    """The looks of its last moments saw its key, found nothing, and lie as far apart as its kind lingers."""
    life = Life().live(history)
    for alert in life.resolved:
        assert alert.gone_at is not None
        assert alert.resolved_at is not None
        assert alert.opened_at is not None
        assert alert.resolved_at - alert.gone_at >= KINDS[alert.kind].linger
        moments = [look for look in _until(history, alert.resolved_at) if look not in _before(history, alert.gone_at)]
        assert moments
        for look in moments:
            assert look.sight.sees(alert.key)
            assert alert.key not in look.wrong


def _before(history: Sequence[Look], moment: datetime) -> list[Look]:
    return _until(history, moment - timedelta(microseconds=1))


@seeded
@given(histories)
def test_in_the_end_all_is_resolved_and_whoever_was_told_knows_it(history: list[Look]) -> None:
    life = Life().live([*history, Look(1), Look(900)])
    assert life.known == {}
    for key in KEYS:
        assert life.says(key).count(Transition.OPEN) == life.says(key).count(Transition.RESOLVED)


@seeded
@given(histories)
def test_what_lasts_is_told_unless_somebody_wants_silence(history: list[Look]) -> None:
    unspoken = [replace(look, silence=None, acknowledges=frozenset()) for look in history]
    lasting = frozenset(KEYS)
    life = Life().live([*unspoken, Look(1, lasting), Look(301, lasting)])
    assert set(life.known) == lasting
    assert all(alert.told_at for alert in life.known.values())


ONE, LATER = f"{AT_ONCE}/one", f"{HELD}/one"
WRONG = frozenset({ONE})

CASES: list[tuple[str, str, list[Look], list[Transition]]] = [
    ("what is wrong is told at once", ONE, [Look(1, WRONG)], [Transition.OPEN]),
    ("what is wrong still is not told anew", ONE, [Look(1, WRONG)] * 9, [Transition.OPEN]),
    ("until it is due again", ONE, [Look(1, WRONG), Look(600, WRONG)], [Transition.OPEN, Transition.AGAIN]),
    ("what flickers is one incident", ONE, [Look(5, WRONG), Look(5)] * 9, [Transition.OPEN]),
    (
        "what is gone for long enough is resolved",
        ONE,
        [Look(1, WRONG), Look(1), Look(20)],
        [Transition.OPEN, Transition.RESOLVED],
    ),
    ("and not before: a restart may fail", ONE, [Look(1, WRONG), Look(1), Look(19)], [Transition.OPEN]),
    (
        "one long look away proves no absence: it began when it was first seen",
        ONE,
        [Look(1, WRONG), Look(900)],
        [Transition.OPEN],
    ),
    (
        "what comes back is a new incident",
        ONE,
        [Look(1, WRONG), Look(1), Look(20), Look(1, WRONG)],
        [Transition.OPEN, Transition.RESOLVED, Transition.OPEN],
    ),
    (
        "a source that is blind resolves nothing",
        ONE,
        [Look(1, WRONG), *[Look(900, blind=True)] * 3],
        [Transition.OPEN, *[Transition.AGAIN] * 3],
    ),
    (
        "nor does one that cannot see this one",
        ONE,
        [Look(1, WRONG), *[Look(60, unseen=WRONG)] * 3],
        [Transition.OPEN],
    ),
    (
        "blindness breaks an absence off",
        ONE,
        [Look(1, WRONG), Look(1), Look(15, blind=True), Look(15), Look(15)],
        [Transition.OPEN],
    ),
    ("what mends itself in time is told to nobody", LATER, [Look(1, frozenset({LATER})), Look(299)], []),
    ("what does not, is", LATER, [Look(1, frozenset({LATER})), Look(300, frozenset({LATER}))], [Transition.OPEN]),
    ("a silence keeps it quiet", ONE, [Look(1, WRONG, silence=ALL), Look(900, WRONG)], []),
    ("what came and went in silence was never told", ONE, [Look(1, WRONG, silence=ALL), Look(1), Look(60)], []),
    (
        "what outlasts a silence is told when it ends",
        ONE,
        [Look(1, WRONG, silence=Silence("application_down/*", NOW + timedelta(seconds=60))), Look(60, WRONG)],
        [Transition.OPEN],
    ),
    ("a silence of others is none", ONE, [Look(1, WRONG, silence=replace(ALL, pattern="*/two"))], [Transition.OPEN]),
    (
        "who was paged is told that it is over, silence or not",
        ONE,
        [Look(1, WRONG), Look(900, WRONG, silence=ALL), Look(1), Look(20)],
        [Transition.OPEN, Transition.RESOLVED],
    ),
    (
        "an acknowledgement ends the repetition, and not the incident",
        ONE,
        [Look(1, WRONG), Look(900, WRONG, acknowledges=WRONG), Look(1), Look(20)],
        [Transition.OPEN, Transition.RESOLVED],
    ),
    (
        "the next incident is acknowledged by nobody",
        ONE,
        [Look(1, WRONG), Look(1, WRONG, acknowledges=WRONG), Look(1), Look(20), Look(1, WRONG)],
        [Transition.OPEN, Transition.RESOLVED, Transition.OPEN],
    ),
]


@pytest.mark.parametrize(("key", "history", "told"), [pytest.param(*case, id=why) for why, *case in CASES])
def test_a_case(key: str, history: list[Look], told: list[Transition]) -> None:
    assert Life().live(history).says(key) == told


def test_a_newer_cause_is_known_and_not_told_anew() -> None:
    def found(cause: str) -> Observation:
        return Observation((Finding(AT_ONCE, "one", cause),))

    [first] = evaluate_all([], found("it died"), EvaluationContext(NOW, REPEAT))
    [second] = evaluate_all([first.alert], found("it hangs"), EvaluationContext(NOW + timedelta(seconds=1), REPEAT))
    assert (second.alert.cause, second.alert.found_at, second.says) == ("it hangs", NOW, None)
