"""Law 1 for rules that change while the stream runs: stream = rebuild = a naive matcher, in each generated case.

Each case has rules of its own, which judge only its own partitions. They are added, changed and retired between the
events, and their records are read in other cuts than the events. Events come late, entities have more events than a
search reads, spans expire, and matches wait for the log's clock.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple

import pytest
from psycopg import sql

from tests.beds.lab import Lab, clock_after, last_cut, place
from tests.laws.events import START, Record
from tests.library.patterns.naive_matcher import Fits, Naive
from truelog import EventSource
from truelog.patterns import grammar
from truelog.patterns.matcher import Event
from truelog.views.patterns import SHOWN, Patterns

CASES, RECORDS, PARTITIONS, CUTS = 60, 30, 2, 4
SECOND = 1_000_000
_BEGAN = int(START.timestamp()) * SECOND
_NEVER = 2**40  # an offset that no event has
_LONGEST, _SPAN, _MOST = 10 * SECOND, 40 * SECOND, 12
# The first second of a case's events. They lie in one span or in two. The law's clock lets some spans expire.
_FIRST_SECONDS = (-100, -95, -90, -60, -45, -12, 0, 28)

CONDITIONS: dict[str, Fits] = {
    "true": lambda event, before, last: True,
    "price > 2": lambda event, before, last: event.values["price"] > 2,
    "price < prev(price)": lambda event, before, last: bool(before and event.values["price"] < before.values["price"]),
    "price = a.price": lambda event, before, last: "a" in last and event.values["price"] == last["a"].values["price"],
}
ABSENT = ("price > 2", "price = a.price")
PATTERNS = ("a b", "a b+", "a .. b", "a{2} b?", "(a b | b a)", "a")

SOURCE = EventSource(
    entities={"symbol": "symbol"}, columns={"price": "number"}, longest={"symbol": f"{_LONGEST // SECOND} seconds"}
)
VIEW = Patterns(sources={"price": SOURCE}, most=_MOST, keep="1 hour")


_Taken = tuple[tuple[int, int, str], ...]  # partitions and offsets of events, with their steps


class Found(NamedTuple):
    """A row."""

    rule: str
    version: int
    symbol: str
    events: _Taken
    outcome: str
    settled_after: int | None


@dataclass
class _Rule:
    """A version of a rule: the naive matcher, and the offsets that it judges by partition."""

    name: str
    version: int
    naive: Naive
    is_final: bool
    late_after: int
    begins: dict[int, int]
    ends: dict[int, int] | None = None
    ended_at: int | None = None

    def find(self, symbol: str, events: list[Event]) -> Iterator[Found]:
        """What the rule finds among the events of one search."""
        begun = [each for each in events if each.offset >= self.begins[each.partition]]
        first = self.matches([each for each in begun if each.logged_at - each.at <= self.late_after])
        every = self.matches(begun)
        for taken, settled_after in {**first, **every}.items():
            outcome = "retracted" if taken not in every else "found" if taken in first else "late"
            yield Found(self.name, self.version, symbol, taken, outcome, settled_after)

    def matches(self, begun: list[Event]) -> dict[_Taken, int | None]:
        """The matches that are settled before the version ends, each with the time that settles it."""
        judged = sorted(each for each in begun if self.ends is None or each.offset < self.ends[each.partition])
        found = {}
        for taken in self.naive.find(judged, begun):
            settled = self.settled_after(judged[taken[0][0]].at, self.naive.deadline(judged, taken))
            if settled is None or self.ended_at is None or settled < self.ended_at:
                found[tuple((judged[number].partition, judged[number].offset, step) for number, step in taken)] = (
                    settled
                )
        return found

    def settled_after(self, first: int, deadline: int) -> int | None:
        absent = self.naive.absent
        if self.is_final:
            return first + self.naive.within + (absent[1] or 0 if absent else 0) + self.late_after
        return None if absent is None else deadline + self.late_after


@dataclass
class Case:
    """A generated log, and what the naive matcher finds in it."""

    number: int
    records: list[Record] = field(default_factory=list)
    events: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))  # by symbol
    rules: list[_Rule] = field(default_factory=list)

    def expected(self, expires_before: int) -> set[Found]:
        """The rows when the spans before a time have expired."""
        return {
            row
            for symbol, events in self.events.items()
            for start in {each.at // _SPAN * _SPAN for each in events}
            if start + _SPAN >= expires_before
            for row in self._of_span(symbol, start)
        }

    def _of_span(self, symbol: str, start: int) -> Iterator[Found]:
        """The matches that begin in a span, of the first events that reached the log."""
        read = self.read(symbol, start)
        in_order = sorted(read, key=lambda each: (each.logged_at, each.partition, each.offset))
        searched, following = in_order[:_MOST], in_order[_MOST:]
        times = {(each.partition, each.offset): each.at for each in searched}
        for row in (row for rule in self.rules for row in rule.find(symbol, searched)):
            is_settled = not following or row.settled_after is None or row.settled_after < following[0].logged_at
            if is_settled and times[row.events[0][:2]] // _SPAN * _SPAN == start:
                yield row

    def read(self, symbol: str, start: int) -> list[Event]:
        """The events that the search of a span reads."""
        return [each for each in self.events[symbol] if start - _LONGEST <= each.at < start + _SPAN + _LONGEST]


def draw_case(chosen: Random, number: int, cases: int) -> Case:
    case, offsets, cut = Case(number), dict.fromkeys(range(PARTITIONS), 0), 0
    began = chosen.choice(_FIRST_SECONDS)
    for _ in range(RECORDS):
        cut = min(cut + (chosen.random() < 0.15), CUTS - 1)
        if chosen.random() < 0.2:
            _change_rule(chosen, case, offsets, cases, cut)
            continue
        partition, symbol, price = chosen.randrange(PARTITIONS), chosen.choice("AAB"), chosen.randrange(5)
        second = began + chosen.randint(0, 24)
        logged = second + chosen.choice((0, 0, 0, 1, 5, 70))
        at, logged_at = (_BEGAN + each * SECOND for each in (second, logged))
        case.events[symbol].append(Event(at, "price", partition, offsets[partition], logged_at, {"price": price}))
        offsets[partition] += 1
        values = {"event_id": "e", "symbol": symbol, "price": price, "occurred_at": _text(second)}
        case.records.append(Record("price", partition, json.dumps(values).encode(), cut, logged))
    return case


def _change_rule(chosen: Random, case: Case, offsets: dict[int, int], cases: int, cut: int) -> None:
    """Add, change or retire a rule at these offsets. Its record may be read in another cut than its events."""
    name, second = f"r{case.number}_{chosen.choice('xy')}", chosen.randint(-92, 60)
    before = next((each for each in reversed(case.rules) if each.name == name and each.ends is None), None)
    if before is not None:
        before.ends, before.ended_at = dict(offsets), _BEGAN + second * SECOND
    verb, document = "retired", None
    if before is None or chosen.random() < 0.6:
        numbers = [each.version for each in case.rules if each.name == name]
        document = _document(chosen, name)
        case.rules.append(_rule(document, max(numbers, default=0) + 1, dict(offsets)))
        verb = "set"
    begins = {str(place(n, Record("price", p, None, 0))): _NEVER for n in range(cases) for p in range(PARTITIONS)}
    begins |= {str(place(case.number, Record("price", p, None, 0))): offset for p, offset in offsets.items()}
    values = {"event_id": "r", "rule": name, "verb": verb, "begins": json.dumps({"price": begins})}
    values |= {"occurred_at": _text(0)} | ({} if document is None else {"definition": json.dumps(document)})
    previous = max((each.cut for each in case.records if each.topic == "rule"), default=0)
    read = max(previous, min(CUTS - 1, cut + chosen.choice((0, 0, 1))))
    case.records.append(Record("rule", 0, json.dumps(values).encode(), read, second))


def _document(chosen: Random, name: str) -> dict[str, Any]:
    pattern, within, until = chosen.choice(PATTERNS), chosen.choice((3, 6, 10)), chosen.choice((None, 2, 4))
    steps = {
        each: {"on": "price", "where": chosen.choice(list(CONDITIONS)[: 3 if each == "a" else 4])}
        | ({"gap": f"{chosen.choice((1, 3))} seconds"} if chosen.random() < 0.2 else {})
        for each in "ab"
        if each in pattern
    }
    document: dict[str, Any] = {
        "rule": name,
        "by": "symbol",
        "pattern": pattern,
        "within": f"{within} seconds",
        "after": chosen.choice(("past_last", "next")),
        "steps": steps,
        "final": chosen.random() < 0.2,
        "late_after": f"{chosen.choice((2, 60))} seconds",
    }
    if chosen.random() < 0.4:
        is_short = until is not None and within + until <= _LONGEST // SECOND
        document["absent"] = {"on": "price", "where": chosen.choice(ABSENT)} | (
            {"until": f"{until} seconds"} if is_short else {}
        )
    return document


def _rule(document: dict[str, Any], version: int, begins: dict[int, int]) -> _Rule:
    """What a definition means."""
    steps, absent = document["steps"], document.get("absent")
    naive = Naive(
        grammar.parse(document["pattern"]),
        {name: CONDITIONS[each["where"]] for name, each in steps.items()},
        _micros(document["within"]),
        document["after"] == "past_last",
        {name: _micros(each["gap"]) for name, each in steps.items() if "gap" in each},
        absent and (CONDITIONS[absent["where"]], _micros(absent["until"]) if "until" in absent else None),
    )
    return _Rule(document["rule"], version, naive, document["final"], _micros(document["late_after"]), begins)


def _micros(duration: str) -> int:
    return int(duration.split(maxsplit=1)[0]) * SECOND


def _text(second: int) -> str:
    return f"{START + timedelta(seconds=second):%Y-%m-%dT%H:%M:%SZ}"


@pytest.fixture(scope="module")
def drawn() -> list[Case]:
    chosen = Random(84)
    return [draw_case(chosen, number, CASES) for number in range(CASES)]


def _rows(lab: Lab, name: str, clock: int | None = None) -> dict[int, set[Found]]:
    """The streamed rows by case; with a clock, the rows that are shown at this time."""
    table = sql.Identifier("recon", f"{lab.by_case(name, VIEW).own.name}_streamed")
    at = sql.SQL("to_timestamp({})").format(clock / SECOND) if clock is not None else sql.SQL("'infinity'")
    query = sql.SQL(
        "SELECT entity_id, rule, rule_version, events, outcome, (extract(epoch FROM settled_after) * 1000000)::bigint "
        "FROM ({}) AS shown"
    ).format(sql.SQL(SHOWN).format(view=table, clock=at))
    found: dict[int, set[Found]] = defaultdict(set)
    for entity_id, rule, version, events, outcome, settled_after in lab.connection.execute(query).fetchall():
        case, _, symbol = entity_id.partition("|")
        of_match = tuple((e["partition"] % 100, e["offset"], e["step"]) for e in json.loads(events))
        found[int(case)].add(Found(rule, version, symbol, of_match, outcome, settled_after))
    return found


def _shown(rows: set[Found], clock: int) -> set[Found]:
    return {row for row in rows if row.settled_after is None or row.settled_after < clock}


def test_changing_rules_find_in_stream_and_rebuild_what_a_naive_matcher_finds(lab: Lab, drawn: list[Case]) -> None:
    counts = lab.compare_all("changing_rules", VIEW, [case.records for case in drawn])
    assert counts.rows > 2 * CASES, "the cases have too few matches to show a difference"
    assert counts.unequal == 0

    end = clock_after(VIEW, last_cut([case.records for case in drawn])) - timedelta(hours=1)
    expected = {case.number: case.expected(int(end.timestamp()) * SECOND) for case in drawn}
    found = _rows(lab, "changing_rules")
    assert {case.number: found[case.number] for case in drawn} == expected
    waiting = [row.settled_after for rows in expected.values() for row in rows if row.settled_after is not None]
    for clock in Random(84).sample(waiting, 5):
        for at in (clock, clock + 1):
            shown = _rows(lab, "changing_rules", at)
            assert {n: shown[n] for n in expected} == {n: _shown(rows, at) for n, rows in expected.items()}
    _require_variety(drawn, expected)


def _require_variety(drawn: list[Case], expected: dict[int, set[Found]]) -> None:
    """Each case that the law is about occurs several times."""
    rows = [row for found in expected.values() for row in found]
    outcomes = Counter(row.outcome for row in rows)
    assert min(outcomes[each] for each in ("found", "late", "retracted")) >= 5
    assert sum(row.settled_after is not None for row in rows) >= 10
    assert sum(any(each.version > 1 for each in case.rules) for case in drawn) > CASES // 3
    assert sum(len(case.expected(-(10**18))) > len(expected[case.number]) for case in drawn) >= 5, "no span expires"
    spans = [
        (case, symbol, start)
        for case in drawn
        for symbol, events in case.events.items()
        for start in {each.at // _SPAN * _SPAN for each in events}
    ]
    assert sum(len(case.read(symbol, start)) > _MOST for case, symbol, start in spans) >= 5
    assert len(spans) > 3 * CASES
