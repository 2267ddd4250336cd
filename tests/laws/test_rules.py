"""Law 1 for rules that change while the stream runs: stream = rebuild = a naive matcher, in each generated case.

Each case has rules of its own, which judge only its own partitions. They are added, changed and retired between the
events, and their records are read in other cuts than the events.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from psycopg import sql

from rules.sources import SOURCES
from tests.beds.lab import Lab, place
from tests.laws.events import START, Record
from tests.library.patterns.naive_matcher import Fits, Naive
from truelog.patterns import grammar
from truelog.patterns.matcher import Event
from truelog.views.patterns import Patterns

CASES, RECORDS, PARTITIONS = 40, 30, 2
SECOND = 1_000_000
_BEGAN = int(START.timestamp()) * SECOND
_NEVER = 2**40  # an offset that no event has

CONDITIONS: dict[str, Fits] = {
    "true": lambda event, before, last: True,
    "price > 2": lambda event, before, last: event.values["price"] > 2,
    "price < prev(price)": lambda event, before, last: bool(before and event.values["price"] < before.values["price"]),
    "price = a.price": lambda event, before, last: "a" in last and event.values["price"] == last["a"].values["price"],
}
PATTERNS = ("a b", "a b+", "a .. b", "a{2} b?", "(a b | b a)", "a")

VIEW = Patterns(sources={"price": SOURCES["price"]}, most=1_000)

_Found = set[tuple[str, int, str, tuple[tuple[int, int, str], ...]]]  # rule, version, symbol, events with their steps


@dataclass
class _Rule:
    """A version of a rule: the naive matcher, and the offsets that it judges by partition."""

    name: str
    version: int
    naive: Naive
    begins: dict[int, int]
    ends: dict[int, int] | None = None

    def judges(self, event: Event) -> bool:
        begun = event.offset >= self.begins[event.partition]
        return begun and (self.ends is None or event.offset < self.ends[event.partition])


@dataclass
class Case:
    """A generated log, and what the naive matcher finds in it."""

    number: int
    records: list[Record] = field(default_factory=list)
    events: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))  # by symbol
    rules: list[_Rule] = field(default_factory=list)

    def expected(self) -> _Found:
        found: _Found = set()
        for rule in self.rules:
            for symbol, events in self.events.items():
                judged = sorted(each for each in events if rule.judges(each))
                for taken in rule.naive.find(judged):
                    of_match = [(judged[number], step) for number, step in taken]
                    coordinates = tuple((e.partition, e.offset, step) for e, step in of_match)
                    found.add((rule.name, rule.version, symbol, coordinates))
        return found


def draw_case(chosen: Random, number: int, cases: int) -> Case:
    case, offsets, cut = Case(number), dict.fromkeys(range(PARTITIONS), 0), 0
    for _ in range(RECORDS):
        cut = min(cut + (chosen.random() < 0.15), 3)
        if chosen.random() < 0.2:
            _change_rule(chosen, case, offsets, cases, cut)
            continue
        partition, symbol, price = chosen.randrange(PARTITIONS), chosen.choice("AB"), chosen.randrange(5)
        second = chosen.randint(0, 20)
        time = _BEGAN + second * SECOND
        case.events[symbol].append(Event(time, "price", partition, offsets[partition], _BEGAN, {"price": price}))
        offsets[partition] += 1
        values = {"event_id": "e", "symbol": symbol, "price": price, "occurred_at": _text(second)}
        case.records.append(Record("price", partition, json.dumps(values).encode(), cut))
    return case


def _change_rule(chosen: Random, case: Case, offsets: dict[int, int], cases: int, cut: int) -> None:
    """Add, change or retire a rule at these offsets. Its record may be read in another cut than its events."""
    name = f"r{case.number}_{chosen.choice('xy')}"
    before = next((each for each in reversed(case.rules) if each.name == name and each.ends is None), None)
    if before is not None:
        before.ends = dict(offsets)
    verb, definition = "retired", None
    if before is None or chosen.random() < 0.6:
        numbers = [each.version for each in case.rules if each.name == name]
        definition, naive = _definition(chosen, name)
        case.rules.append(_Rule(name, max(numbers, default=0) + 1, naive, dict(offsets)))
        verb = "set"
    begins = {str(place(n, Record("price", p, None, 0))): _NEVER for n in range(cases) for p in range(PARTITIONS)}
    begins |= {str(place(case.number, Record("price", p, None, 0))): offset for p, offset in offsets.items()}
    values = {"event_id": "r", "rule": name, "verb": verb, "begins": json.dumps({"price": begins})}
    values |= {"occurred_at": _text(0)} | ({} if definition is None else {"definition": definition})
    previous = max((each.cut for each in case.records if each.topic == "rule"), default=0)
    read = max(previous, min(3, cut + chosen.choice((0, 0, 1))))
    case.records.append(Record("rule", 0, json.dumps(values).encode(), read))


def _definition(chosen: Random, name: str) -> tuple[str, Naive]:
    pattern, within = chosen.choice(PATTERNS), chosen.choice((3, 10, 30))
    is_past_last, steps = chosen.random() < 0.5, [each for each in "ab" if each in pattern]
    where = {each: chosen.choice(list(CONDITIONS)[: 3 if each == "a" else 4]) for each in steps}
    document: dict[str, Any] = {
        "rule": name,
        "by": "symbol",
        "pattern": pattern,
        "within": f"{within} seconds",
        "after": "past_last" if is_past_last else "next",
        "steps": {each: {"on": "price", "where": where[each]} for each in steps},
    }
    fits = {each: CONDITIONS[where[each]] for each in steps}
    return json.dumps(document), Naive(grammar.parse(pattern), fits, within * SECOND, is_past_last)


def _text(second: int) -> str:
    return f"2026-03-01T00:00:{second:02}Z"


@pytest.fixture(scope="module")
def drawn() -> list[Case]:
    chosen = Random(84)
    return [draw_case(chosen, number, CASES) for number in range(CASES)]


def _rows(lab: Lab, name: str) -> Iterator[tuple[int, tuple[str, int, str, tuple[tuple[int, int, str], ...]]]]:
    """The case and the content of each streamed row."""
    table = sql.Identifier("recon", f"{lab.by_case(name, VIEW).own.name}_streamed")
    query = sql.SQL("SELECT entity_id, rule, rule_version, events FROM {}").format(table)
    for entity_id, rule, version, events in lab.connection.execute(query).fetchall():
        case, _, symbol = entity_id.partition("|")
        of_match = tuple((e["partition"] % 100, e["offset"], e["step"]) for e in json.loads(events))
        yield int(case), (rule, version, symbol, of_match)


def test_changing_rules_find_in_stream_and_rebuild_what_a_naive_matcher_finds(lab: Lab, drawn: list[Case]) -> None:
    counts = lab.compare_all("changing_rules", VIEW, [case.records for case in drawn])
    assert counts.rows > 2 * CASES, "the cases have too few matches to show a difference"
    assert counts.unequal == 0

    found: dict[int, _Found] = defaultdict(set)
    for case, row in _rows(lab, "changing_rules"):
        found[case].add(row)
    assert {case.number: found[case.number] for case in drawn} == {case.number: case.expected() for case in drawn}
    changed = sum(any(each.version > 1 for each in case.rules) for case in drawn)
    assert changed > CASES // 3
