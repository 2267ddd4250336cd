"""Metrics in Prometheus' text format: all that there are, by name, and what they say now.

They are asked of PostgreSQL when somebody scrapes them, lag among them: where the poller sees nothing, a scrape says
how long that has been so.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from truelog.control.application import ARCHIVE
from truelog.lag import lag_report
from truelog.lag.lag_report import LagRow
from truelog.reconcile import verification_status
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.views import catalogue

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

# Name: type, and what it says.
FAMILIES = {
    "truelog_lag_events": ("gauge", "Records that the reader has still to count"),
    "truelog_lag_seconds": ("gauge", "Age of the first of these by the log's clock, when it was last seen"),
    "truelog_lag_verdict": ("gauge", "1 for the verdict on the reader's lag, as `truelog lag` says it"),
    "truelog_lag_caught_up_seconds": (
        "gauge",
        "Until the reader has caught up, at its pace; none where it falls behind",
    ),
    "truelog_lag_sampled_timestamp_seconds": ("gauge", "When the poller last saw the reader"),
    "truelog_freshness_seconds": ("gauge", "Everything older than this has been counted by the reader"),
    "truelog_position": ("gauge", "Next offset that the reader counts"),
    "truelog_log_end": ("gauge", "Where the partition ends"),
    "truelog_log_earliest": ("gauge", "Where retention lets the partition begin"),
    "truelog_dead_letters_total": ("counter", "Events that were no good, kept with the reason"),
    "truelog_application_alive": ("gauge", "1 while a process holds the application's lease"),
    "truelog_application_batch_age_seconds": ("gauge", "Since the application last ended a batch"),
    "truelog_batch_step_seconds": (
        "gauge",
        "That each step of the application's last batch took; triggerExecution is all of it",
    ),
    "truelog_application_launches_total": ("counter", "Starts of the application"),
    "truelog_stragglers_total": ("counter", "Records that came to the log long after their event"),
    "truelog_merges_total": ("counter", "Merges into the view's table"),
    "truelog_merged_rows_total": ("counter", "Rows that merges brought to the view's table"),
    "truelog_merge_seconds_total": ("counter", "That merges into the view's table took, without their commit"),
    "truelog_prepare_seconds_total": ("counter", "That transforming, adding up and staging took before these merges"),
    "truelog_reconcile_verdict": ("gauge", "1 for what the last reconcile of the view found"),
    "truelog_reconcile_age_seconds": ("gauge", "Since the last reconcile of the view ended"),
    "truelog_reconcile_equal_age_seconds": ("gauge", "Since the view was last found equal to its rebuild, or was made"),
    "truelog_certificates": ("gauge", "Certificates of the view in its newest version"),
    "truelog_certificate_age_seconds": ("gauge", "Since the newest of these was made; none where there is none"),
    "truelog_excluded_records": ("gauge", "Records on which the view's transform failed, left out of it"),
    "truelog_view_rows": ("gauge", "Rows of the view's table, as PostgreSQL estimates them"),
}


@dataclass(frozen=True)
class Point:
    """One value of a family."""

    name: str
    value: float
    labels: Mapping[str, object] = field(default_factory=dict)


def scrape(settings: Settings) -> str:
    """All metrics as of now.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    with db_snapshot.read_snapshot(settings) as connection:
        return format_families(settings, connection)


def format_families(settings: Settings, connection: Connection) -> str:
    """The same within a transaction that the caller has."""
    lag = _lag(lag_report.rows(settings, connection))
    views = catalogue.view_names(settings.views_folder)
    of_all = (_applications, _steps, _stragglers)
    of_views = (_merges, _reconciliations, _certainties, _tables)
    found = [*(of(connection) for of in of_all), *(of(connection, views) for of in of_views)]
    return render_metrics(chain(lag, *found))


def render_metrics(points: Iterable[Point]) -> str:
    """Every family with its points; those without any are named all the same."""
    families = {name: _family(name) for name in FAMILIES}
    for point in points:
        labels = {name: str(value) for name, value in point.labels.items()}
        families[point.name].add_sample(point.name, labels, point.value)
    return generate_latest(_Families(list(families.values()))).decode()


def _family(name: str) -> Metric:
    kind, says = FAMILIES[name]
    return CounterMetricFamily(name, says) if kind == "counter" else GaugeMetricFamily(name, says)


@dataclass(frozen=True)
class _Families(Collector):
    """What one scrape found, in the form that `prometheus_client` writes out."""

    families: list[Metric]

    def collect(self) -> list[Metric]:
        return self.families


def _lag(rows: list[LagRow]) -> Iterator[Point]:
    for row in rows:
        of = {"reader": row.reader, "application": row.application, "topic": row.topic, "partition": row.partition}
        of = {name: value for name, value in of.items() if value is not None}
        yield Point("truelog_lag_verdict", 1, of | {"verdict": row.verdict})
        values = {
            "truelog_lag_events": row.lag_events,
            "truelog_lag_seconds": row.lag_seconds,
            "truelog_lag_caught_up_seconds": row.caught_up_in,
            "truelog_lag_sampled_timestamp_seconds": row.sampled_at,
            "truelog_position": row.position,
            "truelog_log_end": row.end,
            "truelog_log_earliest": row.earliest,
        }
        yield from (Point(name, value, of) for name, value in values.items() if value is not None)
    yield from _freshness(rows)
    yield from _dead_letters(rows)


def _freshness(rows: list[LagRow]) -> Iterator[Point]:
    """Of readers that are seen in every partition."""
    for reader, of_reader in lag_report.by_reader(rows).items():
        if (seconds := lag_report.freshness(of_reader)) is not None:
            yield Point("truelog_freshness_seconds", seconds, {"reader": reader})


def _dead_letters(rows: list[LagRow]) -> Iterator[Point]:
    """The archive reads every topic, so that its samples know where each ends."""
    ends = [row.end for row in rows if row.reader == ARCHIVE and row.topic == "dead_letter"]
    known = [end for end in ends if end is not None]
    if known and len(known) == len(ends):  # a sum over fewer partitions would look like a counter begun anew
        yield Point("truelog_dead_letters_total", sum(known))


def _applications(connection: Connection) -> Iterator[Point]:
    rows = connection.execute(
        "SELECT application, alive, extract(epoch FROM now() - batch_at)::float8, "
        "(SELECT count(*) FROM truelog.launch l WHERE l.application = s.application) "
        "FROM truelog.application_status s ORDER BY application"
    )
    for name, alive, batch_age, launches in rows.fetchall():
        of: dict[str, object] = {"application": name}
        yield Point("truelog_application_alive", 1 if alive else 0, of)
        yield Point("truelog_application_launches_total", _number(launches), of)
        if batch_age is not None:
            yield Point("truelog_application_batch_age_seconds", _number(batch_age), of)


def _steps(connection: Connection) -> Iterator[Point]:
    """Of the last batch that was seen; one that is long over has its age beside it."""
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
    """Of each view in its newest version, with which it begins anew."""
    rows = connection.execute(
        "SELECT DISTINCT ON (view) view, merges, rows, merging, preparing FROM truelog.merge_tally "
        "WHERE view = ANY(%s) ORDER BY view, version DESC",
        (views,),
    )
    names = ("merges", "merged_rows", "merge_seconds", "prepare_seconds")
    for view, *values in rows.fetchall():
        for name, value in zip(names, values, strict=True):
            yield Point(f"truelog_{name}_total", _number(value), {"view": view})


def _reconciliations(connection: Connection, views: list[str]) -> Iterator[Point]:
    """Of each view the last comparison of its newest version."""
    rows = connection.execute(
        "SELECT DISTINCT ON (view) view, verdict, extract(epoch FROM now() - finished_at)::float8 "
        "FROM (SELECT view, max(version) AS version FROM truelog.view WHERE view = ANY(%s) GROUP BY view) n "
        "JOIN truelog.reconciliation USING (view, version) ORDER BY view, id DESC",
        (views,),
    )
    for view, verdict, age in rows.fetchall():
        yield Point("truelog_reconcile_verdict", 1, {"view": view, "verdict": verdict})
        yield Point("truelog_reconcile_age_seconds", _number(age), {"view": view})


def _certainties(connection: Connection, views: list[str]) -> Iterator[Point]:
    """Until a view was found EQUAL once it is as old as it is unproved; one without certificates has no age of them."""
    for view, known in verification_status.verification_statuses(connection, views).items():
        of: dict[str, object] = {"view": view}
        equal_age, age = known.equal_age, known.certified_age
        yield Point("truelog_reconcile_equal_age_seconds", known.age if equal_age is None else equal_age, of)
        yield Point("truelog_certificates", known.certificates, of)
        if age is not None:
            yield Point("truelog_certificate_age_seconds", age, of)


def _tables(connection: Connection, views: list[str]) -> Iterator[Point]:
    """Of each view in its newest version; a table that was never analysed has no estimate."""
    rows = connection.execute(
        "SELECT view, (SELECT count(*) FROM truelog.exclusion e WHERE (e.view, e.version) = (n.view, n.version)), "
        "(SELECT nullif(reltuples, -1)::float8 FROM pg_class "
        "WHERE oid = to_regclass(format('state.%%I', view || '_v' || version))) "
        "FROM (SELECT view, max(version) AS version FROM truelog.view WHERE view = ANY(%s) GROUP BY view) n "
        "ORDER BY view",
        (views,),
    )
    for view, excluded, size in rows.fetchall():
        yield Point("truelog_excluded_records", _number(excluded), {"view": view})
        if size is not None:
            yield Point("truelog_view_rows", _number(size), {"view": view})


def _number(value: Any) -> float:
    return float(value)
