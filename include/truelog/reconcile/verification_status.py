"""Certainty: of each view, in its newest version, when it was last found equal to its rebuild, and last certified.

The two differ where rows became equal while they were compared: that is no one moment's, and leaves no certificate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from truelog.storage.database import Connection

_ASK = """
    SELECT view, version, now(), made_at, (
        SELECT max(finished_at) FROM truelog.reconciliation r
        WHERE (r.view, r.version) = (n.view, n.version) AND verdict = 'EQUAL'
    ), certified_at, certificates
    FROM (
        SELECT DISTINCT ON (view) view, version, made_at FROM truelog.view WHERE view = ANY(%s)
        ORDER BY view, version DESC
    ) n CROSS JOIN LATERAL (
        SELECT max(c.made_at) AS certified_at, count(*) AS certificates FROM truelog.certificate c
        WHERE (c.view, c.version) = (n.view, n.version)
    ) c ORDER BY view
"""


@dataclass(frozen=True)
class VerificationStatus:
    """As of `now`, by PostgreSQL's clock; ages are in seconds, and None of what never was."""

    view: str
    version: int
    now: datetime
    made_at: datetime
    equal_at: datetime | None
    certified_at: datetime | None
    certificates: int

    @property
    def age(self) -> float:
        """Of the version itself, which begins without any."""
        return (self.now - self.made_at).total_seconds()

    @property
    def equal_age(self) -> float | None:
        return self._since(self.equal_at)

    @property
    def certified_age(self) -> float | None:
        """Of its newest certificate."""
        return self._since(self.certified_at)

    def _since(self, moment: datetime | None) -> float | None:
        return None if moment is None else (self.now - moment).total_seconds()


def verification_statuses(connection: Connection, views: Sequence[str]) -> dict[str, VerificationStatus]:
    """Of those of the views that have been made."""
    rows: list[tuple[Any, ...]] = connection.execute(_ASK, (list(views),)).fetchall()
    return {row[0]: VerificationStatus(*row) for row in rows}
