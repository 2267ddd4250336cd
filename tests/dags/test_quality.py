"""Tests of the `quality` DAG: the metrics of log days in a real archive, their validation, and the task links."""

import json
import pickle
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from tests.beds.archived import drop_archive
from tests.builders.log import a_log_day
from tests.library.registered import registered
from truelog.archive.commit import Append, commit
from truelog.archive.schema import TIME
from truelog.archive.table import ensure_table, identifier, open_catalog
from truelog.archive.writer import FileWriter, WriterSettings, blueprint, load_archived_file
from truelog.batch.run_interval import RunInterval, describe_missing
from truelog.quality import event_quality, gx_docs, quality_history, quality_metrics
from truelog.schema.event import Event
from truelog.schema.loading.events import load_events
from truelog.schema.quality import EVENTS, KEYS, LATE, MALFORMED, MISSING, Quality
from truelog.storage import audit_trail
from truelog.storage.database import Connection
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

TOPIC = "search"
MORNING = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(minutes=1)
SEARCH = load_events()[TOPIC]


@dataclass(frozen=True)
class Record:
    """A record in the log; `day` follows the broker's clock, which never goes backwards here."""

    at: datetime
    value: bytes

    @property
    def day(self) -> datetime:
        return self.at.replace(second=0, microsecond=0)


@dataclass
class Searches:
    """An archive of searches, with one-minute log days."""

    settings: Settings
    connection: Connection
    end: int = 0
    records: list[Record] = field(default_factory=list)

    def archive(self, day: int, records: Sequence[Record]) -> None:
        """Archive the records of one day. A day without records also has a start, because ticks mark it."""
        began = MORNING + day * DAY
        a_log_day(self.connection, TOPIC, began.timestamp(), topic_id="searches", first_offset=self.end)
        self.records += records
        if records:
            self._commit(records)

    def measure(self, first: int = 0, last: int = 10) -> RunInterval:
        span = RunInterval(MORNING + first * DAY, MORNING + last * DAY)
        quality_metrics.measure_days(self.settings, [SEARCH], span)
        return span

    def values(self, day: int) -> dict[str, float | None]:
        return {
            each.name: each.value for each in quality_history.day_metrics(self.connection, TOPIC, MORNING + day * DAY)
        }

    def _commit(self, records: Sequence[Record]) -> None:
        begin, self.end = self.end, self.end + len(records)
        columns = {
            "topic": [TOPIC] * len(records),
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": pa.array(range(begin, self.end), pa.int64()),
            "broker_time": pa.array([each.at for each in records], TIME),
            "key": [b"k"] * len(records),
            "value": [each.value for each in records],
            "headers": [[]] * len(records),
        }
        with open_catalog(self.settings) as catalog:
            tables = {TOPIC: blueprint(catalog.load_table(identifier(TOPIC)).metadata)}
            writer: FileWriter = pickle.loads(
                pickle.dumps(FileWriter(WriterSettings.of(self.settings), load_events(), tables, {}))
            )
            files = writer(iter([pa.RecordBatch.from_pydict(columns)]))
            data = tuple(load_archived_file(each["file"][0].as_py(), tables).data_file for each in files)
            commit(catalog, Append(TOPIC, "searches", {0: begin}, {0: self.end}, {0: len(records)}, data))


@pytest.fixture
def searches(postgresql: Settings, s3: Settings, connection: Connection) -> Iterator[Searches]:
    settings = postgresql.model_copy(update={"log_day_seconds": int(DAY.total_seconds())})
    with registered(settings, "searches"), open_catalog(settings) as catalog:
        ensure_table(catalog, SEARCH, "searches", {0: 0})
        yield Searches(settings, connection)
        drop_archive(catalog, TOPIC)
    connection.execute(b"DELETE FROM truelog.log_day WHERE topic_id = 'searches'")
    connection.execute(b"DELETE FROM truelog.validation WHERE event IS NOT NULL")
    connection.execute(b"DELETE FROM truelog.figure")


def random_searches(rng: random.Random, day: int, count: int) -> list[Record]:
    """Random searches for one day; some are late, incomplete or malformed."""
    times = sorted(MORNING + day * DAY + rng.random() * DAY for _ in range(count))
    return [Record(at, rng.choice((b"", b"{}", b"[]")) if rng.random() < 0.1 else search(rng, at)) for at in times]


def search(rng: random.Random, at: datetime, late: float = 0.25) -> bytes:
    happened = at - timedelta(hours=2 if rng.random() < late else 0, milliseconds=1)
    given: dict[str, Any] = {
        "event_id": f"{rng.getrandbits(64):x}",
        "occurred_at": happened.isoformat(),
        "visitor_id": f"v{rng.randrange(40)}",
        "query": "lamp",
        "results": [],
    }
    return json.dumps(given | ({"session_id": "s"} if rng.random() < 0.7 else {})).encode()


def expected_metrics(quality: Quality, records: Sequence[Record]) -> dict[str, float | None]:
    """The metrics computed record by record, with the model that the collector uses for validation."""
    events = list[tuple[Record, Event]]()
    for record in records:
        try:
            events.append((record, SEARCH.model.model_validate_json(record.value)))
        except ValidationError:
            continue
    if not events:
        nothing: dict[str, float | None] = dict.fromkeys((KEYS, LATE, *(f"{MISSING}{name}" for name in OPTIONAL)))
        return nothing | {EVENTS: 0, MALFORMED: 1.0 if records else None}
    late = [
        each for record, each in events if (record.at - each.occurred_at).total_seconds() > quality.lateness_seconds
    ]
    found: dict[str, float | None] = {
        EVENTS: len(events),
        MALFORMED: (len(records) - len(events)) / len(records),
        KEYS: len({each.model_dump()["visitor_id"] for _, each in events}),
        LATE: len(late) / len(events),
    }
    shown = [{**each.model_dump(), "query_words": "each query has a word"} for _, each in events]
    missing = {name: sum(each[name] is None for each in shown) for name in OPTIONAL}
    return found | {f"{MISSING}{name}": count / len(events) for name, count in missing.items()}


OPTIONAL = ("sent_at", "received_at", "session_id", "query_words")


def test_the_metrics_of_a_day_match_a_count_record_by_record(searches: Searches) -> None:
    rng = random.Random(7)
    for day, count in enumerate((300, 0, 1, 120)):
        searches.archive(day, random_searches(rng, day, count))
    searches.archive(4, [Record(MORNING + 4 * DAY, b"no search")])
    searches.measure()
    searches.measure(1, 4)  # a repetition changes nothing
    for day in range(5):
        own = [each for each in searches.records if each.day == MORNING + day * DAY]
        expected, found = expected_metrics(SEARCH.quality, own), searches.values(day)
        assert (found.pop(KEYS) or 0) == pytest.approx(expected.pop(KEYS) or 0, rel=0.05)  # the metric is an estimate
        assert found == expected, day


def test_a_day_is_compared_with_earlier_days_and_names_unchecked_metrics(searches: Searches) -> None:
    for day, count in enumerate((100, 110, 90, 105, 20)):
        at = MORNING + day * DAY
        searches.archive(day, [Record(at, search(random.Random(n), at, late=0)) for n in range(count)])
    searches.archive(5, [])
    span = RunInterval(MORNING, MORNING + 6 * DAY)
    assert event_quality.validate_days(searches.settings, [TOPIC, "click"], span, "run", "oncall") == [TOPIC]
    recorded = audit_trail.latest_operations(searches.connection, 6, "validate")
    assert [(each.subject, each.doer) for each in recorded] == [(TOPIC, "oncall")] * 6
    assert recorded[0].about == "2026-03-01 00:05:00, run"
    first, _, _, fourth, fifth, sixth = event_quality.results_of_run(searches.settings, "run", TOPIC)
    assert (first.success, first.failed) == (True, [])
    unjudged = {each.name for each in quality_history.day_metrics(searches.connection, TOPIC, MORNING) if each.unjudged}
    assert unjudged == {EVENTS, KEYS, *(f"{MISSING}{name}" for name in OPTIONAL)}
    assert fourth.success
    assert fifth.failed[0] == "events 20: at least 51 and at most 205, usually 102"
    assert [each.split()[0] for each in fifth.failed] == [EVENTS, KEYS]
    assert (sixth.success, sixth.failed) == (False, ["events 0: at least 50 and at most 200, usually 100"])
    assert event_quality.results_of_run(searches.settings, "another run", TOPIC) == []


def test_an_event_type_without_events_has_no_verdict(searches: Searches) -> None:
    searches.archive(0, [])
    event_quality.validate_days(searches.settings, [TOPIC], RunInterval(MORNING, MORNING + DAY), "run")
    [found] = event_quality.results_of_run(searches.settings, "run", TOPIC)
    assert (found.success, found.failed) == (None, [])


def test_the_dag_covers_log_days_and_lists_every_event_type(dags: "DagBag") -> None:
    dag: Any = dags.dags["quality"]
    assert dag.params["events"] == sorted(load_events())
    assert (dag.timetable, dag.max_active_runs) == (dags.dags["recompute"].timetable, 1)
    assert dag.get_task("verdict").partial_kwargs["retries"] == 0


def test_the_verdict_links_its_page_and_its_data_docs(dags: "DagBag") -> None:
    task: Any = dags.dags["quality"].get_task("verdict")
    of = SimpleNamespace(op_kwargs={"event": TOPIC, "run_id": "a run"})
    links = {link.name: link.get_link(of, ti_key=SimpleNamespace(run_id="a run")) for link in task.operator_extra_links}
    assert links == {
        "Report": "/plugin/truelog/truelog/quality?of=search",
        "Data Docs": "/plugin/truelog/truelog/data-docs?run=a+run&of=search",
    }


def test_a_run_fails_if_an_event_type_is_out_of_bounds(
    dags: "DagBag", airflow_database: None, searches: Searches
) -> None:
    """Every task runs. The next day has begun in the log, so this day is closed."""
    searches.archive(0, [Record(MORNING, search(random.Random(3), MORNING, late=0)), Record(MORNING, b"{}")])
    searches.archive(24 * 60, [])
    run = dags.dags["quality"].test(logical_date=MORNING + timedelta(days=1))  # the end of the run's interval
    assert {ti.task_id: str(ti.state) for ti in run.get_task_instances()} == {
        "wait": "success",
        "judge": "success",
        "verdict": "failed",
    }
    number = quality_history.latest_validation(searches.connection, run.run_id, TOPIC)
    assert b"malformed 50 %: at most 5 %" in (gx_docs.read_page(searches.settings, number or 0) or b"")
    [found] = event_quality.results_of_run(searches.settings, run.run_id, TOPIC)
    assert found.failed == ["malformed 50 %: at most 5 %"]


def test_a_manual_run_without_a_log_day_fails_and_names_days(
    dags: "DagBag", airflow_database: None, searches: Searches
) -> None:
    """A scheduled run of the same interval succeeds, because the archive may have begun later."""
    empty = RunInterval(MORNING - timedelta(days=1), MORNING)
    assert describe_missing(searches.settings, empty).startswith("the archive has no log day yet")
    searches.archive(0, [])
    searches.archive(1, [])
    expected = (
        "no log day of the chosen event types begins from 2026-02-28 00:00:00 to 2026-03-01 00:00:00; "
        "the newest days: 2026-03-01 00:00:00, 2026-03-01 00:01:00"
    )
    assert describe_missing(searches.settings, empty) == expected
    dag: Any = dags.dags["quality"]
    run = dag.test(logical_date=MORNING)  # the end of the run's interval
    states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    assert states == {"wait": "success", "judge": "failed", "verdict": "upstream_failed"}
    judge = dag.get_task("judge")
    scheduled = SimpleNamespace(run_type="scheduled", triggering_user_name=None)
    assert judge.python_callable(empty.as_dict(), {"events": [TOPIC]}, "scheduled", scheduled) == []
