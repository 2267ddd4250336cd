"""What is wrong with lag: the verdicts that `truelog lag` tells, each as the incident that it is.

A slow application makes all of its views late, and that is one incident; that a view stands still, was rewound or is
overtaken by retention is one for each.
"""

from collections.abc import Iterable
from itertools import groupby

from truelog import application, lag_report, readers
from truelog.alert import Finding, Sight
from truelog.application import Status
from truelog.lag_report import Row
from truelog.lag_verdict import Verdict
from truelog.settings import Settings

# What each verdict is told as, the worst last.
_KIND = {
    Verdict.WARN: "behind",
    Verdict.UNDERPROVISIONED: "behind",
    Verdict.STALL: "stands",
    Verdict.STOP: "stands",
    Verdict.REWIND: "rewound",
    Verdict.FALLING_OFF: "falling_off",
}
_WORSE = tuple(dict.fromkeys(_KIND.values()))
_EXCUSED = ("behind", "stands")  # where the application does not run: that is what is told then
KINDS = (*_WORSE, "blind")


def look(settings: Settings) -> Sight:
    """At every reader in every partition."""
    with readers.snapshot(settings) as connection:
        rows = lag_report.rows(settings, connection)
        statuses = {name: application.status(connection, name) for name in application.names(settings)}
    return sight(rows, {name for name, status in statuses.items() if not _works(status)})


def sight(rows: Iterable[Row], idle: set[str]) -> Sight:
    """What these rows come to, where these applications do not run, or have only begun to."""
    findings, unseen, blind = dict[str, Finding](), set[str](), list[str]()
    for reader, of in groupby(rows, key=lambda row: row.reader):
        known = list(of)
        worst = max(known, key=lambda row: list(Verdict).index(row.verdict))
        unknown = next((row for row in known if row.verdict is Verdict.UNKNOWN), None)
        kind = _KIND.get(worst.verdict)
        if kind in _EXCUSED and worst.application in idle:
            kind = None
        elif kind is not None:
            found = Finding(kind, _subject(kind, worst), f"{reader} {worst.topic} {worst.partition}: {worst.reason}")
            findings.setdefault(found.key, found)
        if unknown is not None:
            blind.append(f"{reader}: {unknown.reason}")
        covered = _WORSE if unknown is not None else _WORSE[: _WORSE.index(kind)] if kind else ()
        excused = _EXCUSED if worst.application in idle else ()
        unseen |= {Finding(each, _subject(each, worst), "").key for each in (*covered, *excused)}
    told = [*findings.values(), *([Finding("blind", "log", "; ".join(blind))] if blind else [])]
    return Sight(tuple(told), frozenset(unseen))


def _subject(kind: str, row: Row) -> str:
    return row.application if kind == "behind" else row.reader


def _works(status: Status) -> bool:
    return status.alive and status.batch_at is not None
