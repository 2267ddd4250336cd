"""Required fields: an optional field that an event must have if another of its fields has a certain value.

A cart event needs a quantity if its `verb` is `added`, and none if it is `checked_out`:

    REQUIRED = [Required("quantity", when="verb", is_in=("added", "quantity_changed"))]

The rules belong to a version of an event type, as its fields do.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from truelog.schema.field import Field
from truelog.support.errors import BadDeclaration


@dataclass(frozen=True)
class Required:
    """An event needs `field` if its field `when` has one of the values `is_in`. `when` declares its allowed values."""

    field: str
    when: str
    is_in: tuple[str, ...]

    @property
    def condition(self) -> str:
        return f"{self.when} is {' or '.join(self.is_in)}"

    @property
    def reason(self) -> str:
        """Why an event without the field is invalid."""
        return f"missing, which an event needs if {self.condition}"

    def is_missing(self, event: object) -> bool:
        """Whether an event, as an object of the model, breaks the rule."""
        return getattr(event, self.when) in self.is_in and getattr(event, self.field) is None

    @property
    def json_schema(self) -> dict[str, Any]:
        """The rule in the words of JSON Schema."""
        holds = {"properties": {self.when: {"enum": list(self.is_in)}}, "required": [self.when]}
        present = {"properties": {self.field: {"not": {"type": "null"}}}, "required": [self.field]}
        return {"if": holds, "then": present}


def require_valid(name: str, rules: Iterable[Required], fields: Iterable[Field]) -> None:
    """Reject rules that no event, or every event, would meet.

    Raises:
        BadDeclaration: the message names the field.
    """
    declared = {each.name: each for each in fields}
    for rule in rules:
        if reason := _defect(rule, declared):
            raise BadDeclaration(f"{name}: Required({rule.field!r}, when={rule.when!r}): {reason}")


def _defect(rule: Required, declared: Mapping[str, Field]) -> str | None:
    if rule.field not in declared or declared[rule.field].required:
        return f"{rule.field} is not an optional field of the event."
    if rule.when not in declared or not declared[rule.when].values:
        return f"{rule.when} does not declare its allowed values; use Literal[…] as its type."
    allowed = declared[rule.when].values
    if not rule.is_in or (unknown := [each for each in rule.is_in if each not in allowed]):
        return f"`is_in` must name some of {', '.join(allowed)}" + (
            f", not {', '.join(unknown)}." if rule.is_in else "."
        )
    return None


def first_missing(rules: Iterable[Required], event: object) -> Required | None:
    """The first rule that the event breaks."""
    return next((rule for rule in rules if rule.is_missing(event)), None)


def as_data(rules: Iterable[Required]) -> list[dict[str, Any]]:
    """The rules as JSON data, which `from_data` reads."""
    return [{"field": each.field, "when": each.when, "is_in": list(each.is_in)} for each in rules]


def from_data(values: Iterable[Mapping[str, Any]]) -> Iterator[Required]:
    return (Required(each["field"], each["when"], tuple(each["is_in"])) for each in values)
