"""Found rule: a notification rule about the matches of a pattern rule, or the hits of a stored search."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from string import Template
from typing import Any, ClassVar

from truelog.notifications.rules.rule import NotificationRule, columns_in, columns_of, require_known
from truelog.rules.names import HITS, MATCHES

WINDOW_SECONDS = 3_600  # by default


@dataclass(frozen=True)
class Kind:
    """What a rule may be about.

    named: the column with the name of the pattern rule or the search.
    columns: what a rule may group by, and what a template may name.
    outcomes: the outcomes that cause notifications; None if the rows have no outcome.
    aged: the key column by whose time a row expires, if its view has `keep`.
    """

    view: str
    named: str
    columns: tuple[str, ...]
    template: str
    outcomes: tuple[str, ...] | None
    aged: str


KINDS = {
    "match": Kind(
        MATCHES,
        "rule",
        ("entity_id", "entity", "match_id", "rule", "rule_version", "outcome", "first_time", "last_time", "shown"),
        "$rule: $entity $entity_id at $last_time",
        ("found", "late"),
        aged="span_end",
    ),
    "hit": Kind(
        HITS,
        "search",
        ("document", "search", "search_version", "event_type", "event_time", "logged_at", "snippet"),
        "$search: $snippet",
        None,
        "logged_at",
    ),
}


@dataclass(frozen=True)
class FoundRule(NotificationRule):
    """An incident takes in further rows for `window_seconds`, and is retracted if all its rows are undone."""

    window_seconds: int

    last_says: ClassVar[str] = "retracted"

    @property
    def about(self) -> Kind:
        return KINDS[self.kind]

    @property
    def view(self) -> str:
        return self.about.view

    @property
    def incident_seconds(self) -> int:
        return self.window_seconds

    @property
    def options(self) -> dict[str, Any]:
        return {"window_seconds": self.window_seconds}

    def fits(self, row: Mapping[str, Any] | None) -> bool:
        if row is None or row[self.about.named] != self.subject:
            return False
        return self.about.outcomes is None or row["outcome"] in self.about.outcomes

    def leaves(self, row: Mapping[str, Any] | None) -> bool:
        return not self.fits(row)

    def settled_after(self, row: Mapping[str, Any], made_at: datetime) -> Any:
        return row.get("settled_after")

    def is_expired(self, key: str, limit: datetime | None) -> bool:
        if limit is None:
            return False
        # An older version of the view stays deployed until the next one is built, and its keys may lack the column.
        time = json.loads(key).get(self.about.aged)
        return time is not None and datetime.fromisoformat(time) < limit

    def text(self, row: Mapping[str, Any]) -> str:
        values = {name: "" if row[name] is None else str(row[name]) for name in self.about.columns}
        return Template(self.template).substitute(values)


def check(state: Mapping[str, Any], name: str) -> FoundRule:
    """The rule of a declaration.

    Raises:
        BadInput: says what is wrong.
    """
    kind, grouped = KINDS[state["kind"]], columns_of(state.get("group_by"))
    columns = dict.fromkeys(kind.columns)
    require_known([*grouped, *columns_in(state["template"])], columns, f"a {state['kind']}")
    common = (name, state["kind"], state["subject"], state["channel"], grouped, state["template"])
    return FoundRule(*common, int(state["window_seconds"]))
