"""What is wrong with lag: the verdicts that `truelog lag` tells, each as the incident that it is.

A slow application makes all of its views late, and that is one incident; that a view stands still, was rewound or is
overtaken by retention is one for each.
"""

from collections.abc import Iterable

from truelog.alerts.alert import Finding, Observation
from truelog.control import application
from truelog.control.application import Status
from truelog.lag import lag_report
from truelog.lag.lag_report import LagRow
from truelog.lag.lag_verdict import LagVerdict
from truelog.storage import db_snapshot
from truelog.support.settings import Settings

# What each verdict is told as, the worst last.
_KIND = {
    LagVerdict.WARN: "lagging",
    LagVerdict.UNDERPROVISIONED: "lagging",
    LagVerdict.STALL: "stalled",
    LagVerdict.STOP: "stalled",
    LagVerdict.REWIND: "positions_rewound",
    LagVerdict.FALLING_OFF: "retention_risk",
}
_WORSE = tuple(dict.fromkeys(_KIND.values()))
_EXCUSED = ("lagging", "stalled")  # where the application does not run: that is what is told then
LAG_KINDS = (*_WORSE, "lag_unknown")


def observe(settings: Settings) -> Observation:
    """At every reader in every partition."""
    with db_snapshot.read_snapshot(settings) as connection:
        rows = lag_report.rows(settings, connection)
        statuses = {name: application.status(connection, name) for name in application.application_names(settings)}
    return observation(rows, {name for name, status in statuses.items() if not _works(status)})


def observation(rows: Iterable[LagRow], idle: set[str]) -> Observation:
    """What these rows come to, where these applications do not run, or have only begun to."""
    readings = lag_report.by_reader(rows).values()
    sights = [_of_reader(of, idle) for of in readings]
    found = {finding.key: finding for each in reversed(sights) for finding in each.findings}
    blind = [next((row for row in of if row.verdict is LagVerdict.UNKNOWN), None) for of in readings]
    reasons = "; ".join(f"{row.reader}: {row.reason}" for row in blind if row)
    told = (*found.values(), Finding("lag_unknown", "log", reasons)) if reasons else tuple(found.values())
    return Observation(told, frozenset().union(*(each.unseen for each in sights)))


def _of_reader(rows: list[LagRow], idle: set[str]) -> Observation:
    """1. Its worst partition speaks for it; where its application does not run, only of what is lost.
    2. Whether something lesser is wrong as well cannot be said then; nor can anything of a partition that is not seen.
    """
    worst = lag_report.worst(rows)
    excused = _EXCUSED if worst.application in idle else ()
    kind = _KIND.get(worst.verdict)
    kind = None if kind in excused else kind  # 1
    blind = any(row.verdict is LagVerdict.UNKNOWN for row in rows)
    lesser = _WORSE if blind else _WORSE[: _WORSE.index(kind)] if kind else ()  # 2
    cause = f"{worst.reader} {worst.topic} {worst.partition}: {worst.reason}"
    findings = (Finding(kind, _subject(kind, worst), cause),) if kind else ()
    return Observation(
        findings, frozenset(Finding(each, _subject(each, worst), "").key for each in (*lesser, *excused))
    )


def _subject(kind: str, row: LagRow) -> str:
    return row.application if kind == "lagging" else row.reader


def _works(status: Status) -> bool:
    return status.alive and status.batch_at is not None
