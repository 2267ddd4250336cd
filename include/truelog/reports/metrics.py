"""All metrics in the Prometheus text format.

Each scrape reads the metrics from PostgreSQL. Lag comes from the newest samples, and one metric has the sample times.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from truelog.control.application import ARCHIVE
from truelog.lag import report as lag_report
from truelog.lag.report import LagRow
from truelog.reconcile import verification_status
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.views import catalogue

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

# The type and the help text of each metric, by name.
FAMILIES = {
    "truelog_lag_events": ("gauge", "Records that the reader has not processed"),
    "truelog_lag_seconds": ("gauge", "Age of the first unprocessed record by the broker's clock, at the last sample"),
    "truelog_lag_verdict": ("gauge", "1 for the verdict on the reader's lag that `truelog lag` shows"),
    "truelog_lag_caught_up_seconds": (
        "gauge",
        "Time until the reader catches up at its current rate; absent if the reader is not catching up",
    ),
    "truelog_lag_sampled_timestamp_seconds": ("gauge", "Time of the reader's last sample"),
    "truelog_freshness_seconds": ("gauge", "The reader has processed every record older than this"),
    "truelog_position": ("gauge", "Next offset that the reader will process"),
    "truelog_log_end": ("gauge", "End offset of the partition"),
    "truelog_log_earliest": ("gauge", "First offset that is still in the partition"),
    "truelog_dead_letters_total": ("counter", "Invalid events, stored with the reason"),
    "truelog_application_alive": ("gauge", "1 if a process holds the application's lease"),
    "truelog_application_batch_age_seconds": ("gauge", "Time since the application last finished a batch"),
    "truelog_batch_step_seconds": (
        "gauge",
        "Duration of each step in the application's last batch; triggerExecution is the whole batch",
    ),
    "truelog_application_launches_total": ("counter", "Starts of the application"),
    "truelog_stragglers_total": ("counter", "Records that reached the log long after their event"),
    "truelog_merges_total": ("counter", "Merges into the view's table"),
    "truelog_merged_rows_total": ("counter", "Rows that merges wrote to the view's table"),
    "truelog_merge_seconds_total": ("counter", "Duration of merges into the view's table, excluding the commit"),
    "truelog_prepare_seconds_total": (
        "counter",
        "Duration of transforming, aggregating and staging before these merges",
    ),
    "truelog_reconcile_verdict": ("gauge", "1 for the verdict of the view's last reconcile"),
    "truelog_reconcile_age_seconds": ("gauge", "Time since the view's last reconcile finished"),
    "truelog_reconcile_equal_age_seconds": (
        "gauge",
        "Time since the view last equalled its rebuild, or since the view was created if it never did",
    ),
    "truelog_certificates": ("gauge", "Certificates of the view's deployed version"),
    "truelog_certificate_age_seconds": ("gauge", "Age of the view's newest certificate; absent if there is none"),
    "truelog_excluded_records": ("gauge", "Records that the view skips because its transform failed on them"),
    "truelog_view_rows": ("gauge", "Rows in the view's table, estimated by PostgreSQL"),
    "truelog_build_age_seconds": ("gauge", "Time since the batch-only view was last built, or since it was created"),
}


@dataclass(frozen=True)
class Point:
    """One sample of a metric."""

    name: str
    value: float
    labels: Mapping[str, object] = field(default_factory=dict)


def scrape(settings: Settings) -> str:
    """The text of all current metrics.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    with db_snapshot.read_snapshot(settings) as connection:
        return format_families(settings, connection)


def format_families(settings: Settings, connection: Connection) -> str:
    """The text of all current metrics, read in the caller's transaction."""
    lag = _lag(lag_report.rows(settings, connection))
    views = catalogue.view_names(settings.views_folder)
    platform = (_applications, _steps, _stragglers)
    by_view = (_merges, _reconciliations, _certainties, _tables, _builds)
    points = [*(read(connection) for read in platform), *(read(connection, views) for read in by_view)]
    return render_metrics(chain(lag, *points), settings.names.labels)


def render_metrics(points: Iterable[Point], common: dict[str, str]) -> str:
    """The text of every metric, including metrics without a sample. Each sample has the common labels."""
    families = {name: _family(name) for name in FAMILIES}
    for point in points:
        labels = {name: str(value) for name, value in point.labels.items()} | common
        families[point.name].add_sample(point.name, labels, point.value)
    return generate_latest(_Families(list(families.values()))).decode()


def _family(name: str) -> Metric:
    kind, help_text = FAMILIES[name]
    return CounterMetricFamily(name, help_text) if kind == "counter" else GaugeMetricFamily(name, help_text)


@dataclass(frozen=True)
class _Families(Collector):
    """The metrics of one scrape, as `prometheus_client` expects them."""

    families: list[Metric]

    def collect(self) -> list[Metric]:
        return self.families


def _lag(rows: list[LagRow]) -> Iterator[Point]:
    for row in rows:
        labels = {"reader": row.reader, "application": row.application, "topic": row.topic, "partition": row.partition}
        labels = {name: value for name, value in labels.items() if value is not None}
        yield Point("truelog_lag_verdict", 1, labels | {"verdict": row.verdict})
        values = {
            "truelog_lag_events": row.lag_events,
            "truelog_lag_seconds": row.lag_seconds,
            "truelog_lag_caught_up_seconds": row.caught_up_in,
            "truelog_lag_sampled_timestamp_seconds": row.sampled_at,
            "truelog_position": row.position,
            "truelog_log_end": row.end,
            "truelog_log_earliest": row.earliest,
        }
        yield from (Point(name, value, labels) for name, value in values.items() if value is not None)
    yield from _freshness(rows)
    yield from _dead_letters(rows)


def _freshness(rows: list[LagRow]) -> Iterator[Point]:
    """The freshness of each reader that has a current sample for every partition."""
    for reader, partitions in lag_report.by_reader(rows).items():
        if (seconds := lag_report.freshness(partitions)) is not None:
            yield Point("truelog_freshness_seconds", seconds, {"reader": reader})


def _dead_letters(rows: list[LagRow]) -> Iterator[Point]:
    """The number of invalid events, from the samples of the archive, which reads every topic."""
    ends = [row.end for row in rows if row.reader == ARCHIVE and row.topic == "dead_letter"]
    known = [end for end in ends if end is not None]
    if known and len(known) == len(ends):  # a sum over fewer partitions would look like a counter reset
        yield Point("truelog_dead_letters_total", sum(known))


def _applications(connection: Connection) -> Iterator[Point]:
    rows = connection.execute(
        "SELECT application, alive, extract(epoch FROM now() - batch_at)::float8, "
        "(SELECT count(*) FROM truelog.launch l WHERE l.application = s.application) + a.old_launches "
        "FROM truelog.application_status s JOIN truelog.application a USING (application) ORDER BY application"
    )
    for name, alive, batch_age, launches in rows.fetchall():
        labels: dict[str, object] = {"application": name}
        yield Point("truelog_application_alive", 1 if alive else 0, labels)
        yield Point("truelog_application_launches_total", _number(launches), labels)
        if batch_age is not None:
            yield Point("truelog_application_batch_age_seconds", _number(batch_age), labels)


def _steps(connection: Connection) -> Iterator[Point]:
    """The steps of the last batch. The age of that batch is a separate metric."""
    rows = connection.execute(
        "SELECT application, step, milliseconds::float8 / 1000 FROM ("
        "SELECT DISTINCT ON (application) application, steps FROM truelog.batch ORDER BY application, at DESC"
        ") newest, jsonb_each_text(steps) AS s (step, milliseconds) ORDER BY application, step"
    )
    for name, step, seconds in rows.fetchall():
        yield Point("truelog_batch_step_seconds", _number(seconds), {"application": name, "step": step})


def _stragglers(connection: Connection) -> Iterator[Point]:
    for topic, records in connection.execute("SELECT topic, records FROM truelog.straggler ORDER BY topic").fetchall():
        yield Point("truelog_stragglers_total", _number(records), {"topic": topic})


def _merges(connection: Connection, views: list[str]) -> Iterator[Point]:
    """The totals for each view's deployed version. A new version starts at zero."""
    rows = connection.execute(
        "SELECT view, merges, rows, merging, preparing "
        "FROM truelog.merge_tally JOIN truelog.deployed USING (view, version) WHERE view = ANY(%s) ORDER BY view",
        (views,),
    )
    names = ("merges", "merged_rows", "merge_seconds", "prepare_seconds")
    for view, *values in rows.fetchall():
        for name, value in zip(names, values, strict=True):
            yield Point(f"truelog_{name}_total", _number(value), {"view": view})


def _reconciliations(connection: Connection, views: list[str]) -> Iterator[Point]:
    """The last comparison of each view's deployed version, with its age."""
    rows = connection.execute(
        "SELECT DISTINCT ON (view) view, verdict, extract(epoch FROM now() - finished_at)::float8 "
        "FROM (SELECT view, version FROM truelog.deployed WHERE view = ANY(%s)) n "
        "JOIN truelog.reconciliation USING (view, version) ORDER BY view, id DESC",
        (views,),
    )
    for view, verdict, age in rows.fetchall():
        yield Point("truelog_reconcile_verdict", 1, {"view": view, "verdict": verdict})
        yield Point("truelog_reconcile_age_seconds", _number(age), {"view": view})


def _certainties(connection: Connection, views: list[str]) -> Iterator[Point]:
    """A view that was never found EQUAL reports its own age. A view without certificates has no certificate age."""
    for view, known in verification_status.verification_statuses(connection, views).items():
        labels: dict[str, object] = {"view": view}
        equal_age, age = known.equal_age, known.certified_age
        yield Point("truelog_reconcile_equal_age_seconds", known.age if equal_age is None else equal_age, labels)
        yield Point("truelog_certificates", known.certificates, labels)
        if age is not None:
            yield Point("truelog_certificate_age_seconds", age, labels)


def _tables(connection: Connection, views: list[str]) -> Iterator[Point]:
    """The table of each view's deployed version. A table that was never analysed has no estimate."""
    rows = connection.execute(
        "SELECT view, (SELECT count(*) FROM truelog.exclusion e WHERE (e.view, e.version) = (n.view, n.version)), "
        "(SELECT nullif(reltuples, -1)::float8 FROM pg_class "
        "WHERE oid = to_regclass(format('%%I.%%I', CASE WHEN batch_only THEN 'batch' ELSE 'state' END, "
        "view || '_v' || version))) "
        "FROM (SELECT view, version, batch_only FROM truelog.deployed WHERE view = ANY(%s)) n "
        "ORDER BY view",
        (views,),
    )
    for view, excluded, size in rows.fetchall():
        yield Point("truelog_excluded_records", _number(excluded), {"view": view})
        if size is not None:
            yield Point("truelog_view_rows", _number(size), {"view": view})


def _builds(connection: Connection, views: list[str]) -> Iterator[Point]:
    """The age of the last build of each batch-only view. A view that was never built reports its own age."""
    rows = connection.execute("SELECT view, age FROM truelog.batch_only WHERE view = ANY(%s) ORDER BY view", (views,))
    for view, age in rows.fetchall():
        yield Point("truelog_build_age_seconds", _number(age), {"view": view})


def _number(value: Any) -> float:
    return float(value)
