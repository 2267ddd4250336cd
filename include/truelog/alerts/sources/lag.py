"""Finds lag problems by turning the verdicts of `truelog lag` into incidents.

A slow application makes all its views late, which is one incident. A view that is stalled, was rewound, or is losing
records to retention is a separate incident. The verdicts of `truelog output list` become incidents too.
"""

from collections.abc import Iterable

from truelog.alerts import store
from truelog.alerts.rules import Finding, Observation
from truelog.control import application
from truelog.control.application import ApplicationStatus
from truelog.lag import output_lag
from truelog.lag import report as lag_report
from truelog.lag.report import LagRow
from truelog.lag.verdict import LagVerdict
from truelog.storage import db_snapshot
from truelog.support.settings import Settings

# The kind for each verdict, worst last.
_KIND_OF = {
    LagVerdict.WARN: "lagging",
    LagVerdict.UNDERPROVISIONED: "lagging",
    LagVerdict.STALL: "stalled",
    LagVerdict.STOP: "stalled",
    LagVerdict.REWIND: "positions_rewound",
    LagVerdict.FALLING_OFF: "retention_risk",
}
_BY_SEVERITY = tuple(dict.fromkeys(_KIND_OF.values()))
_IDLE_EXCUSES = ("lagging", "stalled")  # an application that is starting is late for a good reason
LAG_KINDS = (*_BY_SEVERITY, "lag_unknown")
OUTPUT_KINDS = ("output_behind", "output_resync", "relay_down")
_OUTPUT_KIND_OF = {
    LagVerdict.WARN: "output_behind",
    LagVerdict.STALL: "output_behind",
    LagVerdict.REWIND: "output_resync",
}


def observe(settings: Settings) -> Observation:
    """Check every reader in every partition."""
    with db_snapshot.read_snapshot(settings) as connection:
        rows = lag_report.rows(settings, connection)
        statuses = {name: application.load_status(connection, name) for name in application.application_names(settings)}
        down = {each.subject for each in store.open_alerts(connection) if each.kind == "application_down"}
    return observation(rows, {name for name, status in statuses.items() if not _makes_batches(status)} - down)


def observe_outputs(settings: Settings) -> Observation:
    """One finding for each output with a problem of its own, and a single one if the relay is down.

    While the relay is down, nothing shows whether rows that wait would wait for another reason, too.
    """
    with db_snapshot.read_snapshot(settings) as connection:
        assessed = [(each, *output_lag.assess(each, settings)) for each in output_lag.outputs(connection)]
    stopped = [(each, reason) for each, _, reason in assessed if each.is_relay_down]
    findings = [
        Finding(_OUTPUT_KIND_OF[verdict], each.view, f"version {each.version}: {reason}")
        for each, verdict, reason in assessed
        if verdict in _OUTPUT_KIND_OF
    ]
    relay = (Finding("relay_down", "relay", reason) for _, reason in stopped[:1])
    unseen = (Finding("output_behind", each.view, "").key for each, _ in stopped if each.rows)
    return Observation((*findings, *relay), frozenset(unseen))


def observation(rows: Iterable[LagRow], idle: set[str]) -> Observation:
    """The observation from these rows. `idle` lists the applications that have finished no batch yet.

    An application with an alert is not idle: its readers' problems are found, and folded into the alert.
    """
    readers = lag_report.by_reader(rows).values()
    observations = [_of_reader(reader, idle) for reader in readers]
    by_key = {finding.key: finding for each in reversed(observations) for finding in each.findings}
    unknown = [next((row for row in reader if row.verdict is LagVerdict.UNKNOWN), None) for reader in readers]
    reasons = "; ".join(f"{row.reader}: {row.reason}" for row in unknown if row)
    findings = (*by_key.values(), Finding("lag_unknown", "log", reasons)) if reasons else tuple(by_key.values())
    return Observation(findings, frozenset().union(*(each.unseen for each in observations)))


def _of_reader(rows: list[LagRow], idle: set[str]) -> Observation:
    """The observation of one reader.

    1. The worst partition decides. If the application is idle, lagging and stalled partitions are ignored.
    2. Less severe kinds count as unseen. If any partition's lag is unknown, all kinds count as unseen.
    """
    worst = lag_report.worst(rows)
    excused = _IDLE_EXCUSES if worst.application in idle else ()
    kind = _KIND_OF.get(worst.verdict)
    kind = None if kind in excused else kind  # 1
    unknown = any(row.verdict is LagVerdict.UNKNOWN for row in rows)
    lesser = _BY_SEVERITY if unknown else _BY_SEVERITY[: _BY_SEVERITY.index(kind)] if kind else ()  # 2
    cause = f"{worst.reader} {worst.topic} {worst.partition}: {worst.reason}"
    findings = (Finding(kind, _subject(kind, worst), cause),) if kind else ()
    unseen = (Finding(each, _subject(each, worst), "").key for each in (*lesser, *excused))
    return Observation(findings, frozenset(unseen))


def _subject(kind: str, row: LagRow) -> str:
    return row.application if kind == "lagging" else row.reader


def _makes_batches(status: ApplicationStatus) -> bool:
    return status.alive and status.batch_at is not None
