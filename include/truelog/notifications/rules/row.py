"""Row rule: a notification rule about the rows of any published view, with a condition on their columns.

A row fits while `condition` is true. Once it has fitted for `for_seconds`, it belongs to the incident of its group. It
leaves when `until` is true or, without `until`, when `condition` is no longer true, and also when it vanishes. The
incident is resolved when its last row leaves. `truelog.patterns.expression` reads the conditions. In a condition,
whatever goes wrong is NULL.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from string import Template
from typing import Any, ClassVar

from truelog.notifications.rules.rule import NotificationRule, columns_in, columns_of, require_known
from truelog.patterns import expression
from truelog.patterns.evaluate import evaluator, fields_of
from truelog.patterns.expression import BOOLEAN, UNKNOWN, Expression, Scope
from truelog.storage import exact_json
from truelog.support.errors import BadInput

ROW = "row"  # the kind
_NAMESPACE = uuid.UUID("6c3a0a1e-52f5-4f52-8f0e-0a57f6a4c3de")
_NO_END_SECONDS = 10 * 365 * 86_400  # an incident lasts until its last row leaves


@dataclass(frozen=True)
class RowRule(NotificationRule):
    """Each row is judged by itself. `texts` are the conditions as declared."""

    condition: Expression
    until: Expression | None
    for_seconds: int
    texts: tuple[str, str | None]

    last_says: ClassVar[str] = "resolved"

    @property
    def view(self) -> str:
        return self.subject

    @property
    def incident_seconds(self) -> int:
        return _NO_END_SECONDS

    @property
    def declared(self) -> uuid.UUID:
        return uuid.uuid5(_NAMESPACE, exact_json.write([self.name, self.subject, *self.texts, self.for_seconds]))

    @property
    def options(self) -> dict[str, Any]:
        return {"condition": self.texts[0], "until": self.texts[1], "for_seconds": self.for_seconds}

    def fits(self, row: Mapping[str, Any] | None) -> bool:
        return row is not None and _is_true(self.condition, row)

    def leaves(self, row: Mapping[str, Any] | None) -> bool:
        return not self.fits(row) if row is None or self.until is None else _is_true(self.until, row)

    def settled_after(self, row: Mapping[str, Any], made_at: datetime) -> datetime | None:
        return made_at + timedelta(seconds=self.for_seconds) if self.for_seconds else None

    def is_expired(self, key: str, limit: datetime | None) -> bool:
        return False

    def text(self, row: Mapping[str, Any]) -> str:
        return Template(self.template).safe_substitute({name: _shown(value) for name, value in row.items()})


def check(state: Mapping[str, Any], name: str, columns: Mapping[str, str] | None = None) -> RowRule:
    """The rule of a declaration. `columns` are the types of the view's columns, if they are known.

    Raises:
        BadInput: says what is wrong.
    """
    view, known = state["subject"], _AnyColumn() if columns is None else columns
    condition, until = (_condition(each, state.get(each), view, known) for each in ("condition", "until"))
    assert condition is not None  # noqa: S101 — a declaration without one is refused before
    grouped = columns_of(state.get("group_by"))
    require_known([*grouped, *columns_in(state["template"])], known, view)
    common = (name, ROW, view, state["channel"], grouped, state["template"])
    texts = (state["condition"], state.get("until"))
    return RowRule(*common, condition, until, int(state.get("for_seconds") or 0), texts)


def _condition(field: str, text: str | None, view: str, columns: Mapping[str, str]) -> Expression | None:
    if text is None:
        return None
    try:
        read = expression.parse(text, Scope(ROW, {ROW: view}, {view: columns}), BOOLEAN)
    except BadInput as error:
        raise BadInput(f"{field}: {error}") from None
    if any(each.step is not None or each.back for each in fields_of(read)):
        raise BadInput(f"{field}: name columns of the row alone, without `first`, `last` and `prev`")
    return read


def _is_true(condition: Expression, row: Mapping[str, Any]) -> bool:
    return evaluator(condition, ())([row], 0, ()) is True


def _shown(value: Any) -> str:
    return "" if value is None else exact_json.text(value)


class _AnyColumn(Mapping[str, str]):
    """Any column, of an unknown type."""

    def __getitem__(self, column: str) -> str:
        return UNKNOWN

    def __contains__(self, column: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
