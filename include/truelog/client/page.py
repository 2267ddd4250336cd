"""Pages: rows of a view, with what they were made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Page:
    """Rows of one state of a view. `next` is the cursor of the page behind it; None if there is none.

    Every record that reached the log before `as_of` is counted. `age` is in seconds. `reason` says what is wrong with
    the view, if anything. Rows have `Decimal` for numbers with a fraction, so that no digit is lost.
    """

    view: str
    version: int
    layer: str
    positions: Mapping[str, Mapping[str, int]]
    clock: datetime | None
    as_of: datetime | None
    age: float | None
    reason: str
    rows: tuple[Mapping[str, Any], ...]
    more: bool
    next: str | None

    @staticmethod
    def of(answer: Mapping[str, Any]) -> "Page":
        """The page in the API's answer."""
        times = {name: answer[name] and datetime.fromisoformat(answer[name]) for name in ("clock", "as_of")}
        age = None if answer["age"] is None else float(answer["age"])
        return Page(**{**answer, **times, "age": age, "rows": tuple(answer["rows"])})
