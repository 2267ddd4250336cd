"""Notification rule: sends notifications of rows to a channel, as data.

A rule names a pattern rule or a stored search, a channel, the columns whose equal values are one incident, and a
template. `check` checks a rule before it enters the log.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template
from typing import Any

from truelog.support.errors import BadInput


@dataclass(frozen=True)
class Kind:
    """What a rule may be about.

    named: the column with the name of the pattern rule or the search.
    columns: what a rule may group by, and what a template may name.
    outcomes: the outcomes that cause notifications; None if the rows have no outcome.
    aged: the key column by whose time a row expires; None if rows stay.
    """

    view: str
    named: str
    columns: tuple[str, ...]
    template: str
    outcomes: tuple[str, ...] | None = None
    aged: str | None = None


KINDS = {
    "match": Kind(
        "matches",
        "rule",
        ("entity_id", "entity", "match_id", "rule", "rule_version", "outcome", "first_time", "last_time", "shown"),
        "$rule: $entity $entity_id at $last_time",
        ("found", "late"),
    ),
    "hit": Kind(
        "search_hits",
        "search",
        ("document", "search", "search_version", "event_type", "event_time", "logged_at", "snippet"),
        "$search: $snippet",
        aged="logged_at",
    ),
}


@dataclass(frozen=True)
class NotificationRule:
    """A rule that has been checked."""

    name: str
    kind: str
    subject: str
    channel: str
    group_by: tuple[str, ...]
    window_seconds: int
    template: str

    @property
    def about(self) -> Kind:
        return KINDS[self.kind]

    def fits(self, row: Mapping[str, Any] | None) -> bool:
        """Whether the rule tells of this row. None: the row has vanished."""
        if row is None or row[self.about.named] != self.subject:
            return False
        return self.about.outcomes is None or row["outcome"] in self.about.outcomes

    def text(self, row: Mapping[str, Any]) -> str:
        values = {name: "" if row[name] is None else str(row[name]) for name in self.about.columns}
        return Template(self.template).substitute(values)


def check(state: Mapping[str, Any], name: str) -> NotificationRule:
    """The rule of a declaration.

    Raises:
        BadInput: says what is wrong.
    """
    kind = KINDS.get(state["kind"])
    if kind is None:
        raise BadInput(f"kind: a rule is about a {' or a '.join(KINDS)}")
    grouped = tuple(filter(None, (each.strip() for each in (state.get("group_by") or "").split(","))))
    template = state["template"]
    try:
        valid, named = Template(template).is_valid(), Template(template).get_identifiers()
    except ValueError:
        valid, named = False, []
    if not valid or not template.strip():
        raise BadInput("template: write columns as $name, and a dollar sign as $$")
    if unknown := sorted({*grouped, *named} - set(kind.columns)):
        raise BadInput(f"a {state['kind']} has no column {unknown[0]}; it has {', '.join(kind.columns)}")
    return NotificationRule(
        name, state["kind"], state["subject"], state["channel"], grouped, int(state["window_seconds"]), template
    )
