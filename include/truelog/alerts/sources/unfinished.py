"""Finds long work that does not end: erasures of people, and new versions of views that readers do not see yet.

Both take hours on a large platform, so their alerts open only after hours (`truelog.alerts.kind`).
"""

from collections.abc import Iterator

from truelog.alerts.rules import Finding, Observation
from truelog.erasure.ledger import Step
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.durations import in_words
from truelog.support.settings import Settings

UNFINISHED_KINDS = ("erasure_unfinished", "version_waiting")

# Readers were moved back from a version that is held, and a stalled one has another alert.
_WAITING = """
    SELECT view, version, share, built, behind, verdict, verdict_age FROM truelog.version_status
    JOIN truelog.predecessor USING (view, version)
    WHERE declared AND NOT batch_only AND NOT held AND state <> 'STALLED' ORDER BY view
"""
_ERASURES = """
    SELECT id::text, step, extract(epoch FROM now() - advanced_at)::float8 FROM truelog.erasure
    WHERE step < %s ORDER BY number
"""


def observe(settings: Settings) -> Observation:
    """One finding for each unfinished erasure, which names no person, and one for each new version that waits."""
    with db_snapshot.read_snapshot(settings) as connection:
        return Observation((*_erasures(connection), *_versions(settings, connection)))


def _erasures(connection: Connection) -> Iterator[Finding]:
    for erasure, step, age in connection.execute(_ERASURES, (Step.PROVED,)).fetchall():
        cause = f"its last finished step is {Step(step).name.lower()}, {in_words(age)} ago"
        yield Finding("erasure_unfinished", erasure, cause)


def _versions(settings: Settings, connection: Connection) -> Iterator[Finding]:
    for view, version, share, *facts in connection.execute(_WAITING).fetchall():
        shared = f"; {share} % of the API's readers get it" if share else ""
        yield Finding("version_waiting", view, f"version {version} {_lacks(settings, *facts)}{shared}")


def _lacks(settings: Settings, built: bool, behind: int, verdict: str, age: float | None) -> str:
    """What a version still lacks before readers can move to it."""
    if not built:
        return "is not built yet"
    if age is None:
        return "was never compared with its rebuild"
    if verdict != "EQUAL" or age > settings.cut_over_proof_seconds:
        return f"is not proved: its last comparison, {in_words(age)} ago, found it {verdict}"
    return f"lacks {behind:,} records that readers see" if behind else "is ready, and readers were not moved to it"
