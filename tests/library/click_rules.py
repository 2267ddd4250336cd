"""Rules over clicks, and a view of their matches, for the tests of several packages."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.beds.archived import Archived
from truelog import EventSource, Patterns

SOURCES = {"click": EventSource(entities={"page": "url"}, columns={"search_id": "text"})}
MATCHES = Patterns(sources=SOURCES, most=50, publish=True)

_ONE = {"on": "click", "where": "search_id = '1'"}
PAIR: dict[str, Any] = {"pattern": "a b", "steps": {"a": _ONE, "b": {"on": "click"}}}
ALONE: dict[str, Any] = {  # a click on 1 that no click on 2 follows
    "pattern": "a",
    "steps": {"a": _ONE},
    "absent": {"on": "click", "where": "search_id = '2'"},
}


def definition(name: str, **fields: Any) -> str:
    return json.dumps({"rule": name, "by": "page", "within": "10 seconds"} | fields)


def set_rule(ground: Archived, name: str, begins: str | None = None, **fields: Any) -> None:
    """A record that sets a rule, which judges the clicks from these offsets on, or the clicks that come from now on."""
    _record(ground, name, begins, verb="set", definition=definition(name, **fields))


def retire(ground: Archived, name: str) -> None:
    _record(ground, name, None, verb="retired")


def ends(ground: Archived) -> str:
    return ground.positions.only(["click"]).as_json()


def _record(ground: Archived, name: str, begins: str | None, **fields: str) -> None:
    values = {"rule": name, "begins": begins or ends(ground), "occurred_at": "2026-03-01T03:00:00Z", **fields}
    ground.record("rule", [values])


def rows(ground: Archived, relation: str = "") -> list[tuple[str, int, str, str, str]]:
    """The rows that readers see: rule, version, entity, outcome, and the partitions and offsets of the events."""
    query = f"SELECT rule, rule_version, entity_id, outcome, events FROM views.{ground.compiled.name}{relation}"
    found = ground.lab.connection.execute(query.encode()).fetchall()
    return sorted((*row[:4], places(json.loads(row[4]))) for row in found)


def places(events: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(f"{each['partition']}:{each['offset']}" for each in events)
