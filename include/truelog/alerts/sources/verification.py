"""Finds problems that verification reveals: view reconciles, archive audits, and quality checks of log days.

A view causes at most one finding, which is the worst problem that applies: the view differs, recent comparisons were
inconclusive, or its certificate is stale.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from truelog.alerts.rules import Finding, Observation
from truelog.control.application import ARCHIVE
from truelog.quality import quality_history
from truelog.reconcile import verification_status
from truelog.reconcile.verification_status import VerificationStatus
from truelog.schema.loading import events
from truelog.storage import db_snapshot
from truelog.support.durations import in_words
from truelog.support.settings import Settings
from truelog.views import catalogue

VIEW_KINDS = ("view_different", "reconcile_inconclusive", "certificate_stale")
ARCHIVE_KINDS = ("archive_corrupt", "archive_unaudited")
EVENT_KINDS = ("quality_anomaly",)
_NAMED_FAULTS = 3

# The deployed version of each view, with its last comparison and its last conclusive comparison.
_COMPARISONS = """
    SELECT n.view, last.verdict, last.reason, answer.verdict, answer.missing, answer.extra, answer.different,
        extract(epoch FROM now() - coalesce(answer.finished_at, made_at))::float8
    FROM (
        SELECT view, version, made_at FROM truelog.deployed WHERE view = ANY(%s)
    ) n LEFT JOIN LATERAL (
        SELECT verdict, reason FROM truelog.reconciliation r WHERE r.view = n.view
            AND coalesce(r.version, n.version) = n.version ORDER BY id DESC LIMIT 1
    ) last ON true LEFT JOIN LATERAL (
        SELECT verdict, missing, extra, different, finished_at FROM truelog.reconciliation r
        WHERE (r.view, r.version) = (n.view, n.version) AND verdict <> 'UNKNOWN' ORDER BY id DESC LIMIT 1
    ) answer ON true ORDER BY n.view
"""
# The faults and the age of the last audit. Before the first audit, the age is the time since the archive first started.
_AUDIT = """
    SELECT faults, extract(epoch FROM now() - coalesce(finished_at, (
        SELECT min(launched_at) FROM truelog.launch WHERE application = %s
    )))::float8 FROM (SELECT) one LEFT JOIN (
        SELECT faults, finished_at FROM truelog.audit ORDER BY id DESC LIMIT 1
    ) newest ON true
"""


@dataclass(frozen=True)
class ComparisonRecord:
    """A view's last comparison, its last conclusive comparison, and its certificates.

    `inconclusive_seconds` counts from the last conclusive comparison, and `uncertified_seconds` counts from the newest
    certificate. If that event has not happened, the seconds count from the creation of the view.
    """

    view: str
    verdict: str | None
    reason: str | None
    conclusive_verdict: str | None
    missing: int | None
    extra: int | None
    different: int | None
    inconclusive_seconds: float
    uncertified_seconds: float
    certificates: int


def observe_views(settings: Settings) -> Observation:
    """Check every view that has a table."""
    with db_snapshot.read_snapshot(settings) as connection:
        names = catalogue.view_names(settings.views_folder)
        rows = connection.execute(_COMPARISONS, (names,)).fetchall()
        statuses = verification_status.verification_statuses(connection, names)
    return observation(settings, [_verification(row, statuses[row[0]]) for row in rows])


def _verification(row: tuple[Any, ...], status: VerificationStatus) -> ComparisonRecord:
    age = status.age if status.certified_age is None else status.certified_age
    values: tuple[Any, ...] = (*row, age, status.certificates)
    return ComparisonRecord(*values)


def observation(settings: Settings, verifications: Iterable[ComparisonRecord]) -> Observation:
    """The worst problem of each view. The view's less severe kinds count as unseen."""
    findings, unseen = list[Finding](), set[str]()
    for each in verifications:
        worst = next(_problems(settings, each), None)
        if worst is not None:
            findings.append(worst)
            lesser = VIEW_KINDS[VIEW_KINDS.index(worst.kind) + 1 :]
            unseen |= {Finding(kind, each.view, "").key for kind in lesser}
    return Observation(tuple(findings), frozenset(unseen))


def _problems(settings: Settings, checked: ComparisonRecord) -> Iterator[Finding]:
    """The problems of a view, worst first."""
    if checked.conclusive_verdict == "DIFFERENT":
        counts = f"{checked.missing} rows are missing, {checked.extra} extra, {checked.different} different"
        yield Finding("view_different", checked.view, f"{counts}; {checked.reason}" if checked.reason else counts)
    inconclusive, uncertified = checked.inconclusive_seconds, checked.uncertified_seconds
    if checked.verdict == "UNKNOWN" and inconclusive > settings.alert_undecided_seconds:
        yield Finding("reconcile_inconclusive", checked.view, f"for {in_words(inconclusive)}: {checked.reason}")
    if uncertified > settings.alert_unproved_seconds:
        none = f"no certificate since the view was created {in_words(uncertified)} ago"
        old = f"the newest certificate is {in_words(uncertified)} old"
        yield Finding("certificate_stale", checked.view, old if checked.certificates else none)


def observe_archive(settings: Settings) -> Observation:
    """Check the result and the age of the last archive audit."""
    with db_snapshot.read_snapshot(settings) as connection:
        [(faults, age)] = connection.execute(_AUDIT, (ARCHIVE,)).fetchall()
    findings = list[Finding]()
    if faults:
        more = f"; and {len(faults) - _NAMED_FAULTS} more" if len(faults) > _NAMED_FAULTS else ""
        findings.append(Finding("archive_corrupt", ARCHIVE, "; ".join(faults[:_NAMED_FAULTS]) + more))
    if age is not None and age > settings.alert_unaudited_seconds:
        findings.append(Finding("archive_unaudited", ARCHIVE, f"no audit for {in_words(age)}"))
    return Observation(tuple(findings))


def observe_events(settings: Settings) -> Observation:
    """Check the newest validated log day of each event type that has a file. No later day follows for another one."""
    names = events.event_names(settings.events_folder)
    with db_snapshot.read_snapshot(settings) as connection:
        newest = quality_history.newest_days(connection)
    failed = (day for day in newest if day.failed and day.event in names)
    return Observation(
        tuple(Finding("quality_anomaly", day.event, "; ".join(day.failed[:_NAMED_FAULTS])) for day in failed)
    )
