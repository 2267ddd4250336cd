"""Updates: what a subscriber gets to know about its rows."""

import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any


@dataclass(frozen=True)
class Change:
    """A row as it is now, with decimals as `Decimal`. Without a row, it vanished."""

    key: Mapping[str, Any]
    row: Mapping[str, Any] | None


@dataclass(frozen=True)
class Update:
    """The changes of one transaction of a view; or all rows, which replace those before if `is_whole`.

    Numbers follow the order of transactions. `at` is the time of the transaction, if it is known.
    """

    view: str
    version: int
    number: int
    positions: Mapping[str, Mapping[str, int]]
    at: datetime | None
    is_whole: bool
    changes: tuple[Change, ...]

    def apply(self, rows: MutableMapping[str, Mapping[str, Any]]) -> None:
        """Bring a table up to date, which has the rows by the text of their keys."""
        if self.is_whole:
            rows.clear()
        for change in self.changes:
            text = _text(change.key)
            if change.row is None:
                rows.pop(text, None)
            else:
                rows[text] = change.row


def _text(key: Mapping[str, Any]) -> str:
    """The key as JSON. A decimal keeps all its digits, which a float would not."""
    return "{" + ",".join(f"{json.dumps(name)}:{_value(each)}" for name, each in key.items()) + "}"


def _value(value: Any) -> str:
    return str(value) if isinstance(value, Decimal) else json.dumps(value, separators=(",", ":"))
