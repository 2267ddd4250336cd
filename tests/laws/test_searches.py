"""Law 1 for searches that change while the stream runs: stream = rebuild = a naive evaluator, in each generated case.

Each case has searches of its own, which judge only its own partitions. They are added, changed and retired between the
events, and their records are read in other cuts than the events.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from psycopg import sql

from searches.sources import SOURCES
from tests.beds.lab import Lab, place
from tests.laws.events import Record
from tests.library.searches import naive_search
from truelog.searches import query as queries
from truelog.searches.query import Query
from truelog.support.errors import BadInput
from truelog.views.searches import Searches

CASES, RECORDS, PARTITIONS = 40, 30, 2
_NEVER = 2**40  # an offset that no event has
VIEW = Searches(sources={"post": SOURCES["post"], "tweet": SOURCES["tweet"]})
_Hit = tuple[str, int, str, int, int]  # search, version, topic, partition, offset


@dataclass(frozen=True)
class _Search:
    """A version of a search, and the offsets that it judges by topic and partition."""

    name: str
    version: int
    topic: str
    query: Query
    begins: dict[tuple[str, int], int]
    ends: dict[tuple[str, int], int] | None = None


@dataclass
class Case:
    """A generated log, and what the naive evaluator finds in it."""

    number: int
    records: list[Record] = field(default_factory=list)
    texts: dict[tuple[str, int, int], str] = field(default_factory=dict)
    searches: list[_Search] = field(default_factory=list)

    def expected(self) -> set[_Hit]:
        return {
            (each.name, each.version, *coordinates)
            for each in self.searches
            for coordinates, text in self.texts.items()
            if _judges(each, *coordinates) and naive_search.fits(each.query, {"text": text})
        }


def _judges(search: _Search, topic: str, partition: int, offset: int) -> bool:
    begun = topic == search.topic and offset >= search.begins[topic, partition]
    return begun and (search.ends is None or offset < search.ends[topic, partition])


def draw_case(chosen: Random, number: int, cases: int) -> Case:
    case, cut = Case(number), 0
    ends = {(topic, partition): 0 for topic in VIEW.sources for partition in range(PARTITIONS)}
    for _ in range(RECORDS):
        cut = min(cut + (chosen.random() < 0.15), 3)
        if chosen.random() < 0.3:
            _change_search(chosen, case, ends, cases, cut)
            continue
        topic, partition = chosen.choice(sorted(ends))
        text = naive_search.draw_text(chosen)
        case.texts[topic, partition, ends[topic, partition]] = text
        ends[topic, partition] += 1
        values = {"event_id": "e", f"{topic}_id": "p", "author_id": "ann", "verb": "posted", "text": text}
        values["occurred_at"] = "2026-03-01T00:00:00Z"
        case.records.append(Record(topic, partition, json.dumps(values).encode(), cut))
    return case


def _change_search(chosen: Random, case: Case, ends: dict[tuple[str, int], int], cases: int, cut: int) -> None:
    """Add, change or retire a search at these offsets. Its record may be read in another cut than its events."""
    name = f"s{case.number}_{chosen.choice('xyz')}"
    values = {"event_id": "r", "search": name, "verb": "retired", "occurred_at": "2026-03-01T00:00:00Z"}
    values["begins"] = json.dumps(_begins(case, ends, cases))
    current = [n for n, each in enumerate(case.searches) if each.name == name and each.ends is None]
    query, topic = naive_search.draw_query(chosen), chosen.choice(sorted(VIEW.sources))
    if not current or chosen.random() < 0.6:
        values |= {"verb": "set", "event_type": topic, "query": query}
    is_valid = values["verb"] == "retired" or _parsed(query) is not None
    for place_of in current if is_valid else ():
        case.searches[place_of] = replace(case.searches[place_of], ends=dict(ends))
    if values["verb"] == "set" and (parsed := _parsed(query)):
        version = 1 + sum(each.name == name for each in case.searches)
        case.searches.append(_Search(name, version, topic, parsed, dict(ends)))
    previous = max((each.cut for each in case.records if each.topic == "stored_search"), default=0)
    read = max(previous, min(3, cut + chosen.choice((0, 0, 1))))
    case.records.append(Record("stored_search", 0, json.dumps(values).encode(), read))


def _begins(case: Case, ends: dict[tuple[str, int], int], cases: int) -> dict[str, dict[str, int]]:
    """The ends of the case's partitions. Those of all other cases are never reached."""
    begins = {
        topic: {str(place(n, Record(topic, p, None, 0))): _NEVER for n in range(cases) for p in range(PARTITIONS)}
        for topic in VIEW.sources
    }
    for (topic, partition), offset in ends.items():
        begins[topic][str(place(case.number, Record(topic, partition, None, 0)))] = offset
    return begins


def _parsed(query: str) -> Query | None:
    try:
        return queries.parse(query, ("text",))
    except BadInput:
        return None


@pytest.fixture(scope="module")
def drawn() -> list[Case]:
    chosen = Random(91)
    return [draw_case(chosen, number, CASES) for number in range(CASES)]


def _found(lab: Lab, name: str) -> dict[int, set[_Hit]]:
    """The streamed rows of each case."""
    table = sql.Identifier("recon", f"{lab.by_case(name, VIEW).own.name}_streamed")
    found: dict[int, set[_Hit]] = defaultdict(set)
    query = sql.SQL("SELECT document, search, search_version FROM {}").format(table)
    for document, search, version in lab.connection.execute(query).fetchall():
        case, _, coordinates = document.partition("|")
        topic, partition, offset = coordinates.split(":")
        found[int(case)].add((search, version, topic, int(partition) % 100, int(offset)))
    return found


def test_changing_searches_find_in_stream_and_rebuild_what_a_naive_evaluator_finds(lab: Lab, drawn: list[Case]) -> None:
    counts = lab.compare_all("changing_searches", VIEW, [case.records for case in drawn])
    assert counts.rows > 2 * CASES, "the cases have too few hits to show a difference"
    assert counts.unequal == 0

    found = _found(lab, "changing_searches")
    assert {case.number: found[case.number] for case in drawn} == {case.number: case.expected() for case in drawn}
    changed = sum(any(each.version > 1 for each in case.searches) for case in drawn)
    assert changed > CASES // 3
