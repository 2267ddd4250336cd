"""The state of each version of a view: who sees it, its progress, whether it is proved, and what is missing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from truelog.control import view_status
from truelog.storage.database import Connection
from truelog.support.durations import in_words
from truelog.support.settings import Settings
from truelog.views.catalogue import table_name

_STATES = """
    SELECT view, version, serving, declared, coalesce(left_at > now() - make_interval(secs => %(former)s), false), held,
        batch_only, state, reason, built, behind, rows, verdict, verdict_age, made_at, deployed_at, share
    FROM truelog.version_status WHERE %(views)s::text[] IS NULL OR view = ANY(%(views)s) ORDER BY view, version
"""


class Stage(StrEnum):
    """How far a version is on its way to readers, and from them."""

    SERVING = "SERVING"  # readers see it
    BUILDING = "BUILDING"  # it waits until the archive has filled it
    CATCHING_UP = "CATCHING_UP"  # it lacks records that readers see
    UNPROVED = "UNPROVED"  # no recent comparison has found it EQUAL
    READY = "READY"  # readers can move to it
    FORMER = "FORMER"  # readers can move back to it
    RESTING = "RESTING"  # no stream runs it


@dataclass(frozen=True)
class VersionState:
    """A version of a view. `rows` is PostgreSQL's estimate.

    declared: the view's file declares it. former: readers saw it before, and its stream goes on for the way back.
    held: readers were moved back from it, so they return only on request.
    behind: how many records it lacks that readers see. verdict: of its last conclusive comparison; "" if there is none.
    share: how many percent of the API's readers get it before a cut-over.
    """

    view: str
    version: int
    serving: bool
    declared: bool
    former: bool
    held: bool
    batch_only: bool
    state: str
    reason: str
    built: bool
    behind: int
    rows: int
    verdict: str
    verdict_age: float | None
    made_at: datetime
    deployed_at: datetime | None
    share: int

    @property
    def runs(self) -> bool:
        """Whether a stream keeps it fresh, or would if it were not stalled."""
        return self.state in (view_status.UP_TO_DATE, view_status.STALLED)

    @property
    def stall(self) -> str:
        """Why its stream does not go on, or an empty string."""
        stalled = self.state == view_status.STALLED
        return f"Version {self.version} of {self.view} is stalled: {self.reason}" if stalled else ""

    @property
    def relation(self) -> str:
        """What readers see of the version whatever version the view shows."""
        return f"views.{table_name(self.view, self.version)}"

    def stage(self, proof_seconds: float) -> Stage:
        if self.serving:
            return Stage.SERVING
        if self.former and self.runs:
            return Stage.FORMER
        if not self.state:
            return Stage.RESTING
        if not self.built:
            return Stage.BUILDING
        if self.behind or not self.runs:
            return Stage.CATCHING_UP
        return Stage.READY if self.proved(proof_seconds) else Stage.UNPROVED

    def proved(self, proof_seconds: float) -> bool:
        """Whether a recent comparison has found it EQUAL."""
        return self.verdict == "EQUAL" and self.verdict_age is not None and self.verdict_age <= proof_seconds

    def obstacle(self, proof_seconds: float) -> str:
        """Why readers cannot move to this version now, apart from records that it still lacks, or an empty string."""
        name, build = f"Version {self.version} of {self.view}", f"`truelog versions build {self.view}`"
        obstacles = {
            f"{name} is batch-only: its readers move when it is built.": self.batch_only,
            self.stall: bool(self.stall),
            f"{name} is not built yet. {build} builds it.": not self.built,
            f"No application runs version {self.version} of {self.view} yet: see `truelog status`.": not self.runs,
            f"{name} is not proved: {self._last_comparison()}. {build} compares it.": not self.proved(proof_seconds),
        }
        return next((text for text, applies in obstacles.items() if applies), "")

    def _last_comparison(self) -> str:
        if self.verdict_age is None:
            return "it was never compared"
        return f"its last comparison, {in_words(self.verdict_age)} ago, found it {self.verdict}"

    def as_dict(self, proof_seconds: float) -> dict[str, Any]:
        """The stable format for scripts."""
        return {**vars(self), "stage": str(self.stage(proof_seconds)), "relation": self.relation}


def version_states(
    settings: Settings, connection: Connection, views: Sequence[str] | None = None
) -> list[VersionState]:
    """All versions of all views, or of these."""
    wanted = {"views": None if views is None else list(views), "former": settings.former_keep_seconds}
    return [VersionState(*row) for row in connection.execute(_STATES, wanted).fetchall()]
