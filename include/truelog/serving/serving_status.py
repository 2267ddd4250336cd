"""Layer: who answers the readers of a view, its stream or the batch layer, up to when, and what is the matter.

The choice is made in SQL, by what the reader's own snapshot holds (`sql/layer.sql`); here it is only told.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from truelog.storage.database import Connection
from truelog.support.durations import in_words

STREAM, BATCH = "stream", "batch"


@dataclass(frozen=True)
class ServingStatus:
    """Of a view in the version that readers see. `as_of` is when its stream made its last batch, or, of a batch answer,
    when the archive did before it was read; None where nothing was ever merged."""

    view: str
    layer: str
    as_of: datetime | None
    age: float | None
    reason: str

    @property
    def line(self) -> str:
        """For people."""
        if self.as_of is None or self.age is None:
            return f"{self.view}: {self.layer} layer, which has counted nothing yet: {self.reason}"
        when = f"as of {self.as_of:%Y-%m-%d %H:%M:%S}, {in_words(self.age)} old"
        return f"{self.view}: {self.layer} layer, {when}: {self.reason}"


def serving_statuses(connection: Connection) -> dict[str, ServingStatus]:
    """Of every view that was ever made."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT view, layer, as_of, age, reason FROM truelog.answer ORDER BY view"
    ).fetchall()
    return {str(row[0]): ServingStatus(*row) for row in rows}


def serving_fields(answer: ServingStatus | None) -> dict[str, Any]:
    """The stable form that scripts read, beside what else they are told of a view; nothing of one never made."""
    names = ("layer", "as_of", "age", "reason")
    return {name: None if answer is None else getattr(answer, name) for name in names}
