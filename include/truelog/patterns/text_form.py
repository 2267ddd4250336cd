"""The text form of a rule, for people: one clause a line.

    RULE three_high_then_stop BY sensor
    PATTERN high{3} stop
    WITHIN 10 minutes
    STEP high ON reading WHERE measured > highest
    STEP stop ON reading GAP 1 minute WHERE measured = 0
    SHOW stop.machine_id AS machine_id

Further clauses are `ABSENT ON … [UNTIL …] [WHERE …]`, `AFTER NEXT`, `AFTER PAST LAST`, `FINAL` and `LATE AFTER …`. An
indented line continues the clause before it. `--` at the beginning of a line begins a comment.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from truelog.patterns.rule import Declared
from truelog.support.errors import BadInput

_DURATION = r"\d+ [a-z]+"
_STEP = rf"ON (?P<on>\S+)(?: GAP (?P<gap>{_DURATION}))?(?: WHERE (?P<where>.+))?"
_CLAUSES = {
    "RULE": re.compile(r"RULE (?P<rule>\S+) BY (?P<by>\S+)"),
    "PATTERN": re.compile(r"PATTERN (?P<pattern>.+)"),
    "WITHIN": re.compile(r"WITHIN (?P<within>.+)"),
    "STEP": re.compile(rf"STEP (?P<name>\S+) {_STEP}"),
    "ABSENT": re.compile(rf"ABSENT ON (?P<on>\S+)(?: UNTIL (?P<until>{_DURATION}))?(?: WHERE (?P<where>.+))?"),
    "SHOW": re.compile(r"SHOW (?P<shown>.+) AS (?P<name>\S+)"),
    "AFTER": re.compile(r"AFTER (?P<after>NEXT|PAST LAST)"),
    "FINAL": re.compile(r"FINAL"),
    "LATE": re.compile(r"LATE AFTER (?P<late_after>.+)"),
}
_AFTER = {"NEXT": "next", "PAST LAST": "past_last"}


def parse(text: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The JSON document of a rule's text, and the line of each of its parts.

    Raises:
        BadInput: names the line.
    """
    document: dict[str, Any] = {"steps": {}}
    lines: dict[str, int] = {}
    for number, clause in _clauses(text):
        keyword = clause.split(" ", 1)[0]
        if keyword not in _CLAUSES:
            raise BadInput(f"line {number}: {keyword!r} begins no clause; these do: {', '.join(_CLAUSES)}")
        found = _CLAUSES[keyword].fullmatch(clause)
        if found is None:
            raise BadInput(f"line {number}: the clause is not written like this: {_FORMS[keyword]}")
        for place, value in _parts(keyword, {k: v for k, v in found.groupdict().items() if v is not None}):
            if place in lines:
                raise BadInput(f"line {number}: {place} is there already, in line {lines[place]}")
            lines[place] = number
            _put(document, place, value)
    return document, lines


def located(lines: dict[str, int], error: BadInput) -> BadInput:
    """An error about a part of a rule, with the line of the part."""
    place = str(error).split(":", 1)[0]
    while place and place not in lines:
        place = place.rpartition(".")[0]
    return BadInput(f"line {lines[place]}: {error}") if place else error


def write(declared: Declared) -> str:
    """The text of a rule."""
    clauses = [f"RULE {declared.rule} BY {declared.by}", f"PATTERN {declared.pattern}", f"WITHIN {declared.within}"]
    if declared.after == "next":
        clauses.append("AFTER NEXT")
    if declared.final:
        clauses.append("FINAL")
    if declared.late_after != Declared.model_fields["late_after"].default:
        clauses.append(f"LATE AFTER {declared.late_after}")
    for name, step in declared.steps.items():
        clauses.append(f"STEP {name} ON {step.on}" + _optional("GAP", step.gap) + _where(step.where))
    if declared.absent is not None:
        absent = declared.absent
        clauses.append(f"ABSENT ON {absent.on}" + _optional("UNTIL", absent.until) + _where(absent.where))
    clauses.extend(f"SHOW {shown} AS {name}" for name, shown in declared.show.items())
    return "\n".join(clauses) + "\n"


_FORMS = {
    "RULE": "RULE name BY entity",
    "PATTERN": "PATTERN step step{2,} (step | step)",
    "WITHIN": "WITHIN 10 minutes",
    "STEP": "STEP name ON event_type [GAP 10 seconds] [WHERE condition]",
    "ABSENT": "ABSENT ON event_type [UNTIL 24 hours] [WHERE condition]",
    "SHOW": "SHOW expression AS name",
    "AFTER": "AFTER NEXT or AFTER PAST LAST",
    "FINAL": "FINAL",
    "LATE": "LATE AFTER 1 minute",
}


def _clauses(text: str) -> Iterator[tuple[int, str]]:
    """The clauses of a text, each on one line, with the number of its first line."""
    clauses: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("--"):
            continue
        if line[0].isspace():
            if not clauses:
                raise BadInput(f"line {number}: an indented line continues a clause, but there is none before it")
            clauses[-1][1].append(line.strip())
        else:
            clauses.append((number, [line.strip()]))
    return ((number, " ".join(parts)) for number, parts in clauses)


def _parts(keyword: str, found: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """The parts of the document that a clause declares, by place."""
    makers: dict[str, Callable[[], tuple[str, Any]]] = {
        "STEP": lambda: (f"steps.{found.pop('name')}", found),
        "ABSENT": lambda: ("absent", found),
        "SHOW": lambda: (f"show.{found['name']}", found["shown"]),
        "AFTER": lambda: ("after", _AFTER[found["after"]]),
        "FINAL": lambda: ("final", True),
    }
    if keyword in makers:
        yield makers[keyword]()
    else:
        yield from found.items()


def _put(document: dict[str, Any], place: str, value: Any) -> None:
    outer, _, name = place.rpartition(".")
    (document.setdefault(outer, {}) if outer else document)[name] = value


def _optional(keyword: str, value: str | None) -> str:
    return "" if value is None else f" {keyword} {value}"


def _where(where: str) -> str:
    return "" if where == "true" else f" WHERE {' '.join(where.split())}"
