"""Verification status: when the deployed version of each view was last found EQUAL, and when it was last certified.

The two times differ if rows became equal only during a comparison, because no single moment can then be certified.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from truelog.storage.database import Connection

_QUERY = """
    SELECT view, version, now(), made_at, (
        SELECT max(finished_at) FROM truelog.reconciliation r
        WHERE (r.view, r.version) = (n.view, n.version) AND verdict = 'EQUAL'
    ), certified_at, certificates
    FROM (
        SELECT view, version, made_at FROM truelog.deployed WHERE view = ANY(%s)
    ) n CROSS JOIN LATERAL (
        SELECT max(c.made_at) AS certified_at, count(*) AS certificates FROM truelog.certificate c
        WHERE (c.view, c.version) = (n.view, n.version)
    ) c ORDER BY view
"""


@dataclass(frozen=True)
class VerificationStatus:
    """A view's status at `now` by the PostgreSQL clock. An age is in seconds, or None if the event never happened."""

    view: str
    version: int
    now: datetime
    made_at: datetime
    equal_at: datetime | None
    certified_at: datetime | None
    certificates: int

    @property
    def age(self) -> float:
        """The age of the view's deployed version."""
        return (self.now - self.made_at).total_seconds()

    @property
    def equal_age(self) -> float | None:
        return self._since(self.equal_at)

    @property
    def certified_age(self) -> float | None:
        """The age of the newest certificate."""
        return self._since(self.certified_at)

    def _since(self, moment: datetime | None) -> float | None:
        return None if moment is None else (self.now - moment).total_seconds()


def verification_statuses(connection: Connection, views: Sequence[str]) -> dict[str, VerificationStatus]:
    """The status of these views. A view without a table is left out."""
    rows: list[tuple[Any, ...]] = connection.execute(_QUERY, (list(views),)).fetchall()
    return {row[0]: VerificationStatus(*row) for row in rows}
