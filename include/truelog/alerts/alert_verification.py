"""What is wrong with the proofs: of a view that it equals its rebuild, of the archive that it holds the log; and with
what the log holds: that a log day of an event type is as it should be.

Of each view one thing is told: that it differs, else that nobody can tell, else that nobody has compared it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from truelog.alerts.alert import Finding, Observation
from truelog.control.application import ARCHIVE
from truelog.quality import quality_history
from truelog.reconcile import verification_status
from truelog.reconcile.verification_status import VerificationStatus
from truelog.storage import db_snapshot
from truelog.support.durations import in_words
from truelog.support.settings import Settings
from truelog.views import catalogue

VIEW_KINDS = ("view_different", "reconcile_inconclusive", "certificate_stale")
ARCHIVE_KINDS = ("archive_corrupt", "archive_unaudited")
EVENT_KINDS = ("quality_anomaly",)
_FAULTS = 3  # that are named; the log of the audit names all

# Of each view's newest version: its last comparison, and its last one with an answer.
_ASK = """
    SELECT n.view, last.verdict, last.reason, answer.verdict, answer.missing, answer.extra, answer.different,
        extract(epoch FROM now() - coalesce(answer.finished_at, made_at))::float8
    FROM (
        SELECT DISTINCT ON (view) view, version, made_at FROM truelog.view WHERE view = ANY(%s)
        ORDER BY view, version DESC
    ) n LEFT JOIN LATERAL (
        SELECT verdict, reason FROM truelog.reconciliation r WHERE r.view = n.view
            AND coalesce(r.version, n.version) = n.version ORDER BY id DESC LIMIT 1
    ) last ON true LEFT JOIN LATERAL (
        SELECT verdict, missing, extra, different, finished_at FROM truelog.reconciliation r
        WHERE (r.view, r.version) = (n.view, n.version) AND verdict <> 'UNKNOWN' ORDER BY id DESC LIMIT 1
    ) answer ON true ORDER BY n.view
"""
# The last audit, and since when there is something to audit.
_AUDIT = """
    SELECT faults, extract(epoch FROM now() - coalesce(finished_at, (
        SELECT min(launched_at) FROM truelog.launch WHERE application = %s
    )))::float8 FROM (SELECT) one LEFT JOIN (
        SELECT faults, finished_at FROM truelog.audit ORDER BY id DESC LIMIT 1
    ) newest ON true
"""


@dataclass(frozen=True)
class ViewVerification:
    """Of a view: its last comparison, the last one with an answer, seconds since that, and since it was certified.

    It is as long without an answer, and without a certificate, as it has been there.
    """

    view: str
    verdict: str | None
    reason: str | None
    answer: str | None
    missing: int | None
    extra: int | None
    different: int | None
    unanswered: float
    uncertified: float
    certificates: int


def observe_views(settings: Settings) -> Observation:
    """Of every view that has been made."""
    with db_snapshot.read_snapshot(settings) as connection:
        names = catalogue.view_names(settings.views_folder)
        rows: list[tuple[Any, ...]] = connection.execute(_ASK, (names,)).fetchall()
        known = verification_status.verification_statuses(connection, names)
    return observation(settings, [_proof(row, known[row[0]]) for row in rows])


def _proof(row: tuple[Any, ...], known: VerificationStatus) -> ViewVerification:
    age = known.age if known.certified_age is None else known.certified_age
    return ViewVerification(*[*row, age, known.certificates])


def observation(settings: Settings, proofs: Iterable[ViewVerification]) -> Observation:
    """The lesser ones are not looked for where a greater one is found."""
    findings, unseen = list[Finding](), set[str]()
    for proof in proofs:
        found = next(_wrong(settings, proof), None)
        if found is not None:
            findings.append(found)
            lesser = VIEW_KINDS[VIEW_KINDS.index(found.kind) + 1 :]
            unseen |= {Finding(kind, proof.view, "").key for kind in lesser}
    return Observation(tuple(findings), frozenset(unseen))


def _wrong(settings: Settings, proof: ViewVerification) -> Iterator[Finding]:
    if proof.answer == "DIFFERENT":
        counts = f"{proof.missing} rows are missing, {proof.extra} extra, {proof.different} different"
        yield Finding("view_different", proof.view, f"{counts}; {proof.reason}" if proof.reason else counts)
    if proof.verdict == "UNKNOWN" and proof.unanswered > settings.alert_undecided_seconds:
        yield Finding("reconcile_inconclusive", proof.view, f"for {in_words(proof.unanswered)}: {proof.reason}")
    if proof.uncertified > settings.alert_unproved_seconds:
        none = f"it has no certificate, and has been there for {in_words(proof.uncertified)}"
        old = f"its newest certificate is {in_words(proof.uncertified)} old"
        yield Finding("certificate_stale", proof.view, old if proof.certificates else none)


def observe_archive(settings: Settings) -> Observation:
    """By its last audit."""
    with db_snapshot.read_snapshot(settings) as connection:
        row: Any = connection.execute(_AUDIT, (ARCHIVE,)).fetchone()
    faults, age = row
    findings = list[Finding]()
    if faults:
        more = f"; and {len(faults) - _FAULTS} more" if len(faults) > _FAULTS else ""
        findings.append(Finding("archive_corrupt", ARCHIVE, "; ".join(faults[:_FAULTS]) + more))
    if age is not None and age > settings.alert_unaudited_seconds:
        findings.append(Finding("archive_unaudited", ARCHIVE, f"for {in_words(age)}"))
    return Observation(tuple(findings))


def observe_events(settings: Settings) -> Observation:
    """By the newest log day of each event type that was judged."""
    with db_snapshot.read_snapshot(settings) as connection:
        newest = quality_history.newest_days(connection)
    odd = (each for each in newest if each.failed)
    return Observation(tuple(Finding("quality_anomaly", each.event, "; ".join(each.failed[:_FAULTS])) for each in odd))
