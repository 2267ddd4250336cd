"""The flow report: the way of events from topics through archive and views to outputs, with the state of every step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from truelog.control import application
from truelog.control.application import ARCHIVE
from truelog.lag import output_lag
from truelog.lag import report as lag_report
from truelog.lag.report import LagRow
from truelog.lag.verdict import LagVerdict
from truelog.relay.view_feed import topic_of
from truelog.reports import view as view_report
from truelog.reports.view import ViewEntry
from truelog.storage import db_snapshot
from truelog.support.settings import Settings


@dataclass(frozen=True)
class TopicFlow:
    """A topic. Its rate and its records come from the archive's newest sample; both are None if that is too old."""

    topic: str
    partitions: int
    events_per_second: float | None
    records: int | None  # that Kafka still has


@dataclass(frozen=True)
class ReaderFlow:
    """A view or the archive. `freshness` in seconds is None if a partition has no current sample."""

    reader: str
    application: str
    reads: Sequence[str]
    state: str
    events_per_second: float | None
    freshness: float | None
    lag: LagVerdict | None  # None for a batch-only view
    proof: str | None  # the verdict of the latest comparison


@dataclass(frozen=True)
class OutputFlow:
    """An output topic with the verdict on its relay."""

    topic: str
    view: str
    verdict: LagVerdict
    reason: str


@dataclass(frozen=True)
class FlowReport:
    topics: Sequence[TopicFlow]
    archive: ReaderFlow
    views: Sequence[ReaderFlow]
    outputs: Sequence[OutputFlow]
    applications: Sequence[str]


def flow_report(settings: Settings) -> FlowReport:
    """The report at this moment.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    entries = view_report.view_entries(settings)
    with db_snapshot.read_snapshot(settings) as connection:
        lags = lag_report.by_reader(lag_report.rows(settings, connection))
        outputs = output_lag.outputs(connection)
    archive = lags.get(ARCHIVE, [])
    topics = _by_topic(archive)
    return FlowReport(
        [_topic(name, rows) for name, rows in topics.items()],
        ReaderFlow(ARCHIVE, ARCHIVE, list(topics), "", *_progress(archive), None),
        [_view(entry, lags.get(entry.view, [])) for entry in entries],
        [OutputFlow(topic_of(o.view, o.version), o.view, *output_lag.assess(o, settings)) for o in outputs],
        application.application_names(settings),
    )


def _by_topic(rows: Sequence[LagRow]) -> Mapping[str, list[LagRow]]:
    found: dict[str, list[LagRow]] = {}
    for row in rows:
        if row.topic is not None:
            found.setdefault(row.topic, []).append(row)
    return dict(sorted(found.items()))


def _topic(name: str, rows: Sequence[LagRow]) -> TopicFlow:
    kept = [row.end - row.earliest for row in rows if row.end is not None and row.earliest is not None]
    rate = lag_report.total(row.rate_in for row in rows)
    return TopicFlow(name, len(rows), rate, sum(kept) if len(kept) == len(rows) else None)


def _view(entry: ViewEntry, rows: Sequence[LagRow]) -> ReaderFlow:
    state, proof = "BROKEN" if entry.broken else entry.state, entry.proof.verdict if entry.proof else None
    return ReaderFlow(entry.view, entry.application, entry.reads, state, *_progress(rows), proof)


def _progress(rows: Sequence[LagRow]) -> tuple[float | None, float | None, LagVerdict | None]:
    """A reader's rate, its freshness and its lag verdict."""
    verdict = lag_report.worst(rows).verdict if rows else None
    return lag_report.total(row.rate_counted for row in rows), lag_report.reader_lag(rows).seconds, verdict
