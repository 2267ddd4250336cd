"""Serving status: the layer that a view's readers get, the age of the data, and what is wrong with the stream.

SQL chooses the layer from the reader's own snapshot (`sql/repeatable/views.sql`). This module only reports it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from truelog.storage.database import Connection
from truelog.support.durations import in_words

STREAM, BATCH = "stream", "batch"


@dataclass(frozen=True)
class ServingStatus:
    """The status of the view version that readers see.

    The rows contain every record that reached the log before `as_of`. The lag poller determines this time, which is
    None until the first poll after the version was deployed. The rows may contain later records too. A comparison last
    found them equal to a rebuild from the archive at `proved_at`.
    """

    view: str
    layer: str
    as_of: datetime | None
    age: float | None
    reason: str
    proved_at: datetime | None

    @property
    def line(self) -> str:
        """The status as one line for people."""
        if self.as_of is None or self.age is None:
            return f"{self.view}: {self.layer} layer, age not known yet: {self.reason}"
        when = f"as of {self.as_of:%Y-%m-%d %H:%M:%S}, {in_words(self.age)} old"
        return f"{self.view}: {self.layer} layer, {when}: {self.reason}"


def serving_statuses(connection: Connection) -> dict[str, ServingStatus]:
    """The status of every view that has a table."""
    rows = connection.execute(
        "SELECT view, layer, as_of, age, reason, proved_at FROM truelog.answer ORDER BY view"
    ).fetchall()
    return {row[0]: ServingStatus(*row) for row in rows}


def serving_fields(status: ServingStatus | None) -> dict[str, Any]:
    """A view's serving fields in the stable format for scripts; all are None if the view has no table."""
    names = ("layer", "as_of", "age", "reason", "proved_at")
    return {name: None if status is None else getattr(status, name) for name in names}
