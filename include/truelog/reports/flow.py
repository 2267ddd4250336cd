"""The flow report: the way of events from topics through archive and views to outputs and readers, with all states."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from truelog.apps import launch_history
from truelog.control import application, topic_status
from truelog.control.application import ARCHIVE
from truelog.control.view_status import STARTING
from truelog.lag import notification_lag, output_lag
from truelog.lag import report as lag_report
from truelog.lag.output_lag import OutputLag
from truelog.lag.report import LagRow
from truelog.lag.verdict import LagVerdict
from truelog.quality import quality_history
from truelog.relay.view_feed import topic_of
from truelog.reports import health
from truelog.reports import view as view_report
from truelog.reports.view import ViewEntry
from truelog.serving import view_readers
from truelog.storage import db_snapshot
from truelog.storage.database import Connection, read_value
from truelog.support.durations import in_words
from truelog.support.settings import Settings

_MOST_READERS = 50
NOTIFIER, RELAY = "notifier", "relay"


@dataclass(frozen=True)
class TopicFlow:
    """A topic. Its rate and its records come from the archive's newest sample; both are None if that is too old."""

    topic: str
    partitions: int
    events_per_second: float | None
    records: int | None  # that Kafka still has
    suspended: str  # why an application does not read it, or empty
    quality: str | None  # PASSED or FAILED: its newest validated log day; None if no metric could be checked


@dataclass(frozen=True)
class ReaderFlow:
    """A view or the archive. `freshness` in seconds is None if a partition has no current sample."""

    reader: str
    application: str
    reads: Sequence[str]
    state: str
    events_per_second: float | None
    freshness: float | None
    lag: LagVerdict | None  # None for a batch-only view, and as long as nothing is known of a reader that starts
    proof: str | None  # the verdict of the view's latest comparison; PASSED or FAILED: the archive's latest audit


@dataclass(frozen=True)
class OutputFlow:
    """An output topic with the verdict on its relay."""

    topic: str
    view: str
    rows_per_second: float
    freshness: float  # the age in seconds of the oldest row that is not published, 0 if there is none
    verdict: LagVerdict
    reason: str


@dataclass(frozen=True)
class ServiceFlow:
    """A service on the way: RUNNING, DOWN, or UNUSED if it has nothing to do. `reason` says why it does not run."""

    service: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class ConsumerFlow:
    """Who reads views: the holder of an API key, with the answers of seven days by view, or the notifier."""

    reader: str
    views: Sequence[str]
    answers: int | None  # None for the notifier, which reads changed rows


@dataclass(frozen=True)
class FlowReport:
    topics: Sequence[TopicFlow]
    archive: ReaderFlow
    views: Sequence[ReaderFlow]
    outputs: Sequence[OutputFlow]
    consumers: Sequence[ConsumerFlow]
    applications: Mapping[str, str]  # with their states
    relay: ServiceFlow
    notifier: ServiceFlow


def flow_report(settings: Settings) -> FlowReport:
    """The report at this moment.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    entries = view_report.view_entries(settings)
    with db_snapshot.read_snapshot(settings) as connection:
        lags = lag_report.by_reader(lag_report.rows(settings, connection))
        outputs, rates = output_lag.outputs(connection), output_lag.publishing_rates(connection)
        suspended = {each.topic: each.reason for each in topic_status.suspended_topics(connection)}
        states, consumers = _states(settings, connection), list(_consumers(connection))
        relay, notifier = _relay(connection, outputs), _notifier(connection)
        quality, audit = _quality(connection), _audit(connection)
    archive = lags.get(ARCHIVE, [])
    topics = _by_topic(archive)
    return FlowReport(
        [
            _topic(name, topics.get(name, ()), suspended.get(name, ""), quality.get(name))
            for name in sorted({*topics, *suspended})
        ],
        ReaderFlow(ARCHIVE, ARCHIVE, list(topics), states[ARCHIVE], *_progress(archive, states[ARCHIVE]), audit),
        [_view(entry, lags.get(entry.view, [])) for entry in entries],
        [_output(each, rates[each.view, each.version], settings) for each in outputs],
        consumers,
        states,
        relay,
        notifier,
    )


def _states(settings: Settings, connection: Connection) -> dict[str, str]:
    """The state of each application."""
    names = application.application_names(settings)
    launches = launch_history.launches(connection, names)
    statuses = [application.load_status(connection, name) for name in names]
    return {each.application: health.recorded_state(settings, each, launches[each.application]) for each in statuses}


def _consumers(connection: Connection) -> Iterator[ConsumerFlow]:
    if followed := notification_lag.followed_views(connection):
        yield ConsumerFlow(NOTIFIER, followed, None)
    for reader, answers in view_readers.views_of_readers(connection, _MOST_READERS).items():
        yield ConsumerFlow(reader, sorted(answers), sum(answers.values()))


def _relay(connection: Connection, outputs: Sequence[OutputLag]) -> ServiceFlow:
    age = output_lag.look_age(connection)
    return _looking(RELAY, age, output_lag.DEAD_SECONDS, is_needed=bool(outputs))


def _notifier(connection: Connection) -> ServiceFlow:
    age, is_needed = notification_lag.look_age(connection), notification_lag.is_needed(connection)
    return _looking(NOTIFIER, age, notification_lag.DEAD_SECONDS, is_needed=is_needed)


def _looking(service: str, age: float | None, limit: float, *, is_needed: bool) -> ServiceFlow:
    """The state of a service that records when it last looked for work."""
    if age is not None and age <= limit:
        return ServiceFlow(service, "RUNNING")
    looked = "it has never looked for rows" if age is None else f"it last looked {in_words(age)} ago"
    return ServiceFlow(service, "DOWN" if is_needed else "UNUSED", looked)


def _output(lag: OutputLag, rate: float, settings: Settings) -> OutputFlow:
    return OutputFlow(topic_of(lag.view, lag.version), lag.view, rate, lag.seconds, *output_lag.assess(lag, settings))


def _by_topic(rows: Sequence[LagRow]) -> Mapping[str, list[LagRow]]:
    found: dict[str, list[LagRow]] = {}
    for row in rows:
        if row.topic is not None:
            found.setdefault(row.topic, []).append(row)
    return dict(sorted(found.items()))


def _topic(name: str, rows: Sequence[LagRow], suspended: str, quality: str | None) -> TopicFlow:
    kept = [row.end - row.earliest for row in rows if row.end is not None and row.earliest is not None]
    rate = lag_report.total(row.rate_in for row in rows)
    return TopicFlow(name, len(rows), rate, sum(kept) if len(kept) == len(rows) > 0 else None, suspended, quality)


def _quality(connection: Connection) -> dict[str, str]:
    """The verdict on the newest validated log day of each event type, if a metric was checked."""
    newest = quality_history.newest_days(connection)
    return {each.event: "PASSED" if each.success else "FAILED" for each in newest if each.success is not None}


def _audit(connection: Connection) -> str | None:
    """The verdict of the latest audit of the archive, or None before the first."""
    found: str | None = read_value(
        connection,
        "SELECT CASE WHEN faults = '{}' THEN 'PASSED' ELSE 'FAILED' END FROM truelog.audit ORDER BY id DESC LIMIT 1",
    )
    return found


def _view(entry: ViewEntry, rows: Sequence[LagRow]) -> ReaderFlow:
    state, proof = "BROKEN" if entry.broken else entry.state, entry.proof.verdict if entry.proof else None
    return ReaderFlow(entry.view, entry.application, entry.reads, state, *_progress(rows, state), proof)


def _progress(rows: Sequence[LagRow], state: str) -> tuple[float | None, float | None, LagVerdict | None]:
    """A reader's rate, its freshness and its lag verdict."""
    verdict = lag_report.worst(rows).verdict if rows else None
    if state == STARTING and verdict is LagVerdict.UNKNOWN:
        verdict = None  # UNKNOWN is for a fact that was known before
    return lag_report.total(row.rate_counted for row in rows), lag_report.reader_lag(rows).seconds, verdict
