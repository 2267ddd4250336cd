"""The benchmark arithmetic and the format of `build/bench.json`. The measurements themselves run in `make bench`."""

import json
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException
from rich.console import Console

from bench import command, reading, report, suite, whole
from bench.__main__ import LEAST, read
from bench.core_speed import CoreSpeed
from bench.corpus import Corpus, good, split
from bench.cpu import DRIVER, JVM, WORKERS, LostProcess, Meter, Reading, Recorder, Used, spark_name, used
from bench.five import marks as five_marks
from bench.five import measuring
from bench.five import topics as five_topics
from bench.five import traffic as five_traffic
from bench.five.engines import ENGINES
from bench.peers import after, together
from bench.row import OURS, QUIET, Row, beside, compared
from bench.streaming import Window
from bench.suite import APART, JOBS, Suite
from bench.suite import VIEWS as STREAMED
from tests.deadline import deadline
from tests.scenes.marks import VIEWS, Marks, at
from truelog.log.kafka_producer import OutgoingRecord
from truelog.schema.loading.events import load_events
from truelog.support.settings import Settings
from truelog.traffic import generator
from truelog.views import catalogue

OUR_ROW = Row(
    "archive",
    OURS,
    30_000.0,
    "alone",
    "a note",
    more={"wal_bytes_per_event": 12.3456789},
    guarantees="exactly once",
    cpu_us_per_event={"broker": 1.234, "jvm": 9.876, "all": 11.11},
    other_cores=0.51234,
    reference_ms=13.45,
)
PEER_ROW = Row("archive", "other", 2_000.0, "alone", "another")


def test_all_jobs_run_by_default_and_a_too_short_log_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert read([]).jobs == list(JOBS)
    assert set(read(["--quick"]).jobs) < set(JOBS)
    assert {"five_views"} <= set(APART) < set(JOBS)
    assert read(["--quick", "--events", str(LEAST), "--jobs", "one_cube"]).jobs == ["one_cube"]
    with pytest.raises(SystemExit):
        read(["--events", str(LEAST - 1)])
    assert "at least" in capsys.readouterr().err


def test_the_ratio_compares_the_same_job() -> None:
    assert beside(OUR_ROW, PEER_ROW).ratio == 15
    with pytest.raises(ValueError, match="different jobs"):
        beside(OUR_ROW, Row("rebuild", "other", 1.0, "alone", ""))


def test_a_ratio_needs_our_row_in_the_same_run() -> None:
    """Another engine's row for the same job never stands in for ours."""
    assert compared([PEER_ROW], PEER_ROW).ratio is None
    assert compared([PEER_ROW, OUR_ROW], PEER_ROW).ratio == 15


def test_a_row_is_quiet_only_if_the_load_was_measured() -> None:
    assert not PEER_ROW.is_quiet
    assert replace(PEER_ROW, other_cores=QUIET).is_quiet
    assert not OUR_ROW.is_quiet


def test_only_rows_of_other_engines_have_a_ratio(tmp_path: Path) -> None:
    rows = [OUR_ROW, beside(OUR_ROW, PEER_ROW)]
    report.write(tmp_path / "build" / "bench.json", rows, events=7)
    ours, theirs = json.loads((tmp_path / "build" / "bench.json").read_text())["rows"]
    assert ours == {
        "job": "archive",
        "engine": "truelog",
        "events_per_second": 30_000.0,
        "ran": "alone",
        "note": "a note",
        "wal_bytes_per_event": 12.3457,
        "guarantees": "exactly once",
        "cpu_us_per_event": {"broker": 1.23, "jvm": 9.88, "all": 11.11},
        "other_cores": 0.51,
        "reference_ms": 13.4,
    }
    assert theirs["ratio"] == 15
    shown = StringIO()
    report.show(rows, Console(file=shown, width=200))
    for text in ("15.0", "11.1: jvm 9.9, broker 1.2", "alone *", report.BESIDE, "13.4"):
        assert text in shown.getvalue()


def test_the_speed_of_the_cores_is_the_mean_since_the_last_answer() -> None:
    """Rows that a job returns together have the same speed, and a job does not count what came before it."""
    speed = CoreSpeed(every=3_600, work=iter((0.090, 0.010, 0.030, 0.040)).__next__)
    speed.measure()
    speed.begin()
    speed.measure()
    assert [speed.milliseconds(), speed.milliseconds()] == pytest.approx([20, 20])
    speed.measure()
    assert speed.milliseconds() == pytest.approx(40)


def test_the_speed_of_the_cores_is_measured_during_a_job() -> None:
    measured = threading.Semaphore(0)

    def work() -> float:
        measured.release()
        return 0.020

    CoreSpeed(every=0.001, work=work)
    for _ in range(3):
        assert measured.acquire(timeout=deadline(10))


def test_each_row_says_how_fast_the_cores_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "JOBS", {"idle": lambda _: [OUR_ROW, PEER_ROW]})
    rows = list[Row]()
    Suite(Mock(Settings), Mock(Corpus), seconds=1, window=Window(1, 1), rows=rows).run(["idle"])
    assert [each.engine for each in rows] == [OURS, "other"]
    assert rows[0].reference_ms
    assert rows[0].reference_ms == rows[1].reference_ms != OUR_ROW.reference_ms


def test_what_a_command_leaves_behind_counts_for_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command ends without its Java, and Linux would otherwise forget the CPU time of that."""
    working = "import time\nwhile time.process_time() < 1: pass"
    leaving = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {working!r}]); sys.exit({{code}})"
    monkeypatch.setattr(command, "_CLI", (sys.executable, "-c", leaving.format(code=0)))
    before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])  # user and system time
    command.run([])
    assert sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) >= before + 1
    monkeypatch.setattr(command, "_CLI", (sys.executable, "-c", leaving.format(code=3)))
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        command.run([])


def test_the_rate_covers_the_time_when_all_processes_worked() -> None:
    early = [(0.0, 1), (10.0, 1_001), (20.0, 2_001), (30.0, 3_001)]
    late = [(10.0, 1), (20.0, 501)]
    assert together([early, late]) == 100 + 50


def test_a_warm_up_does_not_count() -> None:
    assert after([(5.0, 1), (10.0, 8), (15.0, 9), (16.0, 10)], 10) == [(15.0, 9), (16.0, 10)]


def test_copies_are_valid_new_events(tmp_path: Path) -> None:
    """Two copies of an event differ only in their ids and times."""
    made = generator.generate(seed=7, begin=datetime.now(UTC), rate=5_000, seconds=0.1)
    originals = [split(record) for record in good(made)]
    records = list(Corpus(tmp_path / "unused", originals=originals).records(2 * len(originals)))
    events = [json.loads(value) for _, _, value in records]
    assert len({event["event_id"] for event in events}) == len(records)
    for topic, _, value in records:
        load_events()[topic].model.model_validate_json(value)
    for one, other in zip(events[: len(originals)], events[len(originals) :], strict=True):
        changed = {name for name in one if one[name] != other[name]}
        assert changed == {"event_id", "occurred_at", "sent_at", "search_id"} & one.keys()
        happened = [datetime.fromisoformat(each["occurred_at"]) for each in (one, other)]
        assert (happened[1] - happened[0]).total_seconds() == 10


def test_a_copied_click_refers_to_the_search_of_the_same_copy(tmp_path: Path) -> None:
    search = OutgoingRecord("search", "v", json.dumps({"event_id": "a" * 32}).encode())
    click = OutgoingRecord("click", "v", json.dumps({"event_id": "b" * 32, "search_id": "a" * 32}).encode())
    made = Corpus(tmp_path / "unused", originals=[split(search), split(click)]).records(4)
    searched, clicked = zip(*[(json.loads(next(made)[2]), json.loads(next(made)[2])) for _ in range(2)], strict=True)
    assert [each["event_id"] for each in searched] == [each["search_id"] for each in clicked]
    assert searched[0] != searched[1]


BUSY = "import os, sys, time\nwhile time.process_time() < {}: pass\n"
WAIT = "print(*os.times()[:4], flush=True)\nsys.stdin.read()"  # user and system time: its own, and its children's
CHILD = BUSY.format(0.3)
PARENT = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CHILD!r}])\n{BUSY.format(0.2)}{WAIT}"
TICK = 0.02  # seconds of CPU time: the kernel counts in hundredths


def test_the_cpu_time_of_a_tree_includes_children_that_have_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        meter = Meter({"tree": process.pid})
        before = meter.read()
        assert process.stdout is not None
        times = [float(each) for each in process.stdout.readline().split()]
        cost = used(before, meter.read())
    finally:
        process.communicate("")
    assert sum(times[:2]) > 0.2 - TICK
    assert sum(times[2:]) > 0.3 - TICK
    assert cost.seconds["tree"] + before.seconds["tree"] == pytest.approx(sum(times), abs=4 * TICK)
    with pytest.raises(RuntimeError, match="ended within"):
        used(before, meter.read())


def test_a_service_is_not_counted_as_part_of_the_tree_that_contains_it() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", BUSY.format(1.0) + WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline()
        everything, both = Meter({}, os.getpid()).read(), Meter({"service": child.pid}, os.getpid()).read()
    finally:
        child.communicate(b"")
    assert both.seconds["service"] >= 1.0 - TICK
    assert both.seconds[DRIVER] < everything.seconds[DRIVER]  # even though this process has worked in between


def test_the_processes_of_an_application_have_names() -> None:
    assert spark_name("/usr/lib/jvm/bin/java -cp pyspark/daemon.jar") == JVM
    assert spark_name("/env/bin/python -m truelog.spark.python_daemon pyspark.worker") == WORKERS
    assert spark_name("/env/bin/python /java/spark_apps/stream.py") == DRIVER


def test_costs_are_per_event_and_other_programs_are_told_apart() -> None:
    before = Reading(10.0, {"jvm": 1.0, "broker": 5.0}, machine=50.0)
    cost = used(before, Reading(14.0, {"jvm": 3.0, "broker": 6.0}, machine=57.0))
    assert cost == Used(4.0, {"jvm": 2.0, "broker": 1.0}, 7.0)
    assert cost.per_event(1_000_000) == {"broker": 1.0, "jvm": 2.0, "all": 3.0}
    assert cost.other_cores == 1.0


def test_an_idle_python_worker_that_spark_has_ended_is_no_lost_process() -> None:
    before = Reading(10.0, {"python workers": 9.0}, machine=50.0, workers={"python workers": {11: 2.0, 12: 7.0}})
    after = Reading(14.0, {"python workers": 3.0}, machine=57.0, workers={"python workers": {11: 3.0}})
    assert used(before, after).seconds == {"python workers": 1.0}
    with pytest.raises(LostProcess, match="python workers"):
        used(before, Reading(14.0, {"python workers": 1.0}, machine=57.0, workers={"python workers": {11: 1.0}}))


def test_a_recorder_reads_before_the_end_of_its_window() -> None:
    recorder = Recorder(Meter({"self": os.getpid()}))
    begin = recorder.between(0, 0)
    assert (begin.wall, begin.seconds["self"]) == (0.0, 0.0)


def test_percentiles_are_observed_values() -> None:
    hundred = [float(n) for n in range(1, 101)]
    assert (at(0.5, hundred), at(0.99, hundred), at(0.99, [3.0])) == (50.0, 99.0, 3.0)


def test_what_happens_before_the_first_read_delays_no_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_CONNECTIONS", 0)
    readers, before = reading.Readers(Settings.model_construct(), [], 0, b""), time.monotonic()
    readers.read()
    assert readers.began >= before


def test_a_mark_is_complete_when_every_view_shows_it() -> None:
    marks = Marks()
    host = marks.make(1).key
    marks.acknowledged[host] = 10.0
    for view in VIEWS[1:]:
        marks.shown[view][host] = 11.5
    assert not marks.all_shown
    marks.shown[VIEWS[0]][host] = 12.0
    assert marks.all_shown
    assert marks.seconds(VIEWS[0]) == [2.0]


def test_records_that_a_view_has_not_reached_count_until_the_end() -> None:
    """Otherwise, a view that falls behind would seem as fresh as the records that it has reached."""
    waiting = deque([(7, 12.0), (9, 14.0)])
    marks = whole.Marks({"behind": {("click", 0): waiting}, "fresh": {("click", 0): deque()}, "unread": {}})
    marks.delays["behind"], marks.delays["fresh"] = [0.5], [2.0, 1.0]
    assert marks.end(15.0) == {"behind": ([0.5, 1.0, 3.0], 2), "fresh": ([1.0, 2.0], 0)}


def test_the_measured_views_exist() -> None:
    measured = {view for views in STREAMED.values() for view in views} | {*VIEWS, *five_marks.VIEWS}
    assert measured <= set(catalogue.view_names())


@pytest.mark.parametrize("view", five_marks.VIEWS)
def test_the_records_of_a_mark_are_valid_events_that_the_view_reads(view: str) -> None:
    reads = catalogue.load_view(view).reads
    for record in five_marks.Marks("mark").make(view)[1]:
        assert record.topic in reads
        load_events()[record.topic].model.model_validate_json(record.value)


def test_the_delay_of_a_mark_begins_when_its_last_record_is_acknowledged() -> None:
    marks = five_marks.Marks("mark")
    joined, _ = marks.make("click_through")
    marks.acknowledge(joined, None, Mock())
    assert not marks.acknowledged["click_through"]
    marks.acknowledge(joined, None, Mock())
    assert [*marks.acknowledged["click_through"]] == [joined]
    assert not marks.are_shown(["click_through"])
    marks.look(Mock(find=lambda view, missing: set(missing)), ["click_through"])
    assert marks.are_shown(["click_through"])
    with pytest.raises(KafkaException):
        marks.acknowledge(joined, KafkaError(KafkaError._MSG_TIMED_OUT), Mock())


def test_the_name_of_a_mark_is_a_host() -> None:
    assert all(re.fullmatch("[a-z-]+", measuring.prefix(name)) for name in ENGINES)


def test_a_search_is_complete_with_its_click_and_a_deleted_row_never_is() -> None:
    assert five_topics.is_complete("click_through", b'{"asked_at": 1, "clicked": {}}')
    assert not five_topics.is_complete("click_through", b'{"asked_at": 1}')
    assert five_topics.is_complete("cart", b"{}")
    assert not five_topics.is_complete("cart", None)


def test_marks_that_a_view_never_shows_count_until_the_end() -> None:
    marks = five_marks.Marks("mark")
    marks.acknowledged["cart"], marks.shown["cart"] = {"a": 10.0, "b": 11.0}, {"a": 10.5}
    assert marks.delays("cart", 15.0) == ([0.5, 4.0], 1)


def test_the_traffic_of_five_views_has_valid_events_of_all_their_topics() -> None:
    records = five_traffic.make_traffic(2.0)
    read = {topic for view in five_marks.VIEWS for topic in catalogue.load_view(view).reads}
    assert len(records) == 2 * five_traffic.RATE
    assert {record.topic for record in records} == {*five_traffic.TOPICS} == read
    for record in records:
        load_events()[record.topic].model.model_validate_json(record.value)
