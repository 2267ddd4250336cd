"""The whole platform with chosen views, Airflow included: what it costs, and how fresh every view is.

Traffic of all event types is sent at a steady rate. Some of its records are marked: a view is as fresh as the time from
the acknowledgement of such a record to the moment when the view's positions include it. A merge changes the rows and
the positions in one transaction.
"""

import json
import os
import shutil
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message

import runtime
from bench.cpu import Meter, used
from bench.freshness import percentiles
from bench.ground import complete, services
from bench.row import OURS, Ran, Row
from tests.beat import TooSlow, every, first
from tests.beds.world import known
from tests.chosen_views import copy_views
from tests.scenes.applications import start
from truelog.apps import launcher
from truelog.control import application
from truelog.control.application import STREAM
from truelog.control.view_status import STALLED, view_statuses
from truelog.log import topics
from truelog.log.kafka_producer import OutgoingRecord, make_producer
from truelog.spark.submit import SPARK
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings
from truelog.traffic import generator
from truelog.views import catalogue

SLOW, MEDIUM, FAST, BUSY = 200, 500, 2_000, 5_000  # events per second
SOCIAL = 0.5  # the share of events that are not of the shop
FIFTY = 50  # views

_MARKED_EVERY = 50
_BEAT_SECONDS, _LOOK_SECONDS = 0.01, 0.05
_WARM_SECONDS, _PATIENCE_SECONDS = 60.0, 300.0
_LATE_SECONDS = 120.0  # after the traffic; a view that needs longer does not hold the rate
_SEED = 17
_RECOVERED_EVENTS = 1_000
_POSITIONS = "SELECT view, topic, partition, next_offset FROM truelog.position"

Place = tuple[str, int]  # topic and partition


def run(
    settings: Settings, views: Sequence[str], seconds: float, rates: Sequence[int], count: int = 0
) -> Iterator[Row]:
    """The rows of a platform that has only these views, all of them in the default application.

    If there are fewer than `count`, copies of them are added. The last rate comes after the launch and the kill,
    because the views may fall behind.
    """
    folder = settings.home / "chosen-views"
    folder.mkdir()
    copy_views(folder, *views)
    _add_copies(folder, count)
    streamed = [name for name, view in catalogue.load_all_views(folder).items() if not view.batch_only]
    named = f"the whole platform with {len(catalogue.view_names(folder))} views"
    with known(settings, views_folder=folder):
        changed = Settings()
        complete(changed)
        send(changed, make_traffic(min(rates[-1], FAST), _WARM_SECONDS), min(rates[-1], FAST), None)
        complete(changed)  # Airflow and the applications have read the warm-up
        measured = Measured(changed, named, _meter(changed), "all on")
        yield measured.idle(seconds)
        for rate in rates[:-1]:
            yield from measured.fresh(rate, seconds)
        yield _launched(changed, named, streamed)
        yield _killed(changed, named, streamed)
        yield from replace(measured, meter=_meter(changed)).fresh(rates[-1], seconds)


def _add_copies(folder: Path, count: int) -> None:
    """Add copies of the streamed views, in the order of their names, until there are so many views."""
    names = [name for name, view in catalogue.load_all_views(folder).items() if not view.batch_only]
    for number in range(count - len(catalogue.view_names(folder))):
        name, copy = names[number % len(names)], number // len(names) + 2
        shutil.copy(folder / f"{name}.py", folder / f"{name}_{copy}.py")


def run_stream(settings: Settings, seconds: float, rates: Sequence[int]) -> Iterator[Row]:
    """The rows of the stream application with all shipped views, beside the services that it needs."""
    streamed = [name for name, view in catalogue.load_all_views().items() if not view.batch_only]
    running = start(settings, "stream.py")
    try:
        send(settings, make_traffic(rates[-1], _WARM_SECONDS), rates[-1], None)
        wait_until_merged(settings, streamed, "the views to merge the warm-up")
        meter = Meter(services(settings), running.process.pid)
        measured = Measured(settings, f"the stream alone with {len(streamed)} views", meter, "alone")
        yield measured.idle(seconds)
        for rate in rates:
            yield from measured.fresh(rate, seconds)
    finally:
        running.end()


@dataclass
class Marks:
    """The marked records that each view has not reached yet, and the delays of all others."""

    missing: Mapping[str, dict[Place, deque[tuple[int, float]]]]
    delays: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    lock: threading.Lock = field(default_factory=threading.Lock)
    sent: float = 0.0  # when the traffic ended

    def acknowledge(self, error: KafkaError | None, message: Message) -> None:
        """Handle the broker's acceptance or refusal of a marked record. The producer calls this method."""
        if error is not None:
            raise KafkaException(error)
        now, topic = time.time(), str(message.topic())
        with self.lock:
            for places in self.missing.values():
                if (place := (topic, int(str(message.partition())))) in places:
                    places[place].append((int(str(message.offset())), now))

    def look(self, connection: Connection) -> None:
        """Record the delays of the marked records that the views have newly reached."""
        rows, now = connection.execute(_POSITIONS).fetchall(), time.time()
        with self.lock:
            for view, topic, partition, next_offset in rows:
                waiting = self.missing.get(str(view), {}).get((str(topic), int(str(partition))), deque())
                while waiting and waiting[0][0] < int(str(next_offset)):
                    self.delays[str(view)].append(now - waiting.popleft()[1])

    @property
    def all_reached(self) -> bool:
        with self.lock:
            return not any(waiting for places in self.missing.values() for waiting in places.values())

    def end(self, now: float) -> dict[str, tuple[list[float], int]]:
        """For each view, the delays in order, and how many of them are of records that it has not reached by now."""
        found = dict[str, tuple[list[float], int]]()
        for view, places in self.missing.items():
            late = [now - at for waiting in places.values() for _, at in waiting]
            if delays := sorted([*self.delays[view], *late]):
                found[view] = delays, len(late)
        return found


@dataclass(frozen=True)
class Measured:
    """A platform whose processes `meter` reads, under this name in the rows."""

    settings: Settings
    named: str
    meter: Meter
    ran: Ran

    def idle(self, seconds: float) -> Row:
        """Measure the cores in use while only ticks arrive."""
        before, job = self.meter.read(), f"idle, {self.named}"
        first(1.0, lambda: time.time() >= before.at + seconds, within=seconds + _PATIENCE_SECONDS, what=job)
        cost, cores = used(before, self.meter.read()), defaultdict[str, float](float)
        for name, value in cost.seconds.items():
            cores[f"{name.replace(': ', '_').replace(' ', '_')}_cores"] += value / cost.wall
        more = {"seconds": cost.wall, "cores": sum(cores.values()), **cores}
        return Row(job, OURS, 0.0, self.ran, "no events, one tick per second", more=more, other_cores=cost.other_cores)

    def fresh(self, rate: int, seconds: float) -> Iterator[Row]:
        """The cost of traffic by process, and the freshness of each view. The cost includes the warm-up."""
        named, traffic = f"{self.named} at {rate:,} events/s", make_traffic(rate, _WARM_SECONDS + seconds)
        with connect(self.settings, autocommit=True) as connection:
            marks, before, merges = Marks(_places(connection)), self.meter.read(), _merges(connection)
            arguments = (self.settings, traffic, rate, marks)
            sender = threading.Thread(target=send, args=arguments, name="traffic")
            sender.start()
            within = _WARM_SECONDS + seconds + _LATE_SECONDS
            with suppress(TooSlow):  # the rows then say how many records were not reached
                for _ in every(_LOOK_SECONDS, within=within, what="the views to reach all marked records"):
                    marks.look(connection)
                    if not sender.is_alive() and marks.all_reached:
                        break
            merges, reasons = _merges(connection) - merges, _reasons(connection)
            late = f"for {_LATE_SECONDS:.0f} s after the traffic, because some views have not merged the last event"
            until = "until every view has merged the last event" if marks.all_reached else late
        cost = used(before, self.meter.read())
        reached = len(traffic) / (marks.sent - before.at)
        cores = sum(cost.seconds.values()) / cost.wall
        yield Row(
            f"{named}: all processes",
            OURS,
            reached,
            self.ran,
            until,
            more={"events": len(traffic), "seconds": cost.wall, "cores": cores, "merges": merges},
            cpu_us_per_event=cost.per_event(len(traffic)),
            other_cores=cost.other_cores,
        )
        for view, (delays, unreached) in sorted(marks.end(time.time()).items()):
            note = f"acknowledged to merged, {len(delays)} marked events, polled every {_LOOK_SECONDS * 1000:.0f} ms"
            note += f"; {unreached} of them were not reached and count until the end" if unreached else ""
            note += f"; stalled: {reasons[view]}" if view in reasons else ""
            job, more = f"{named}: freshness of {view}", percentiles(delays)
            yield Row(job, OURS, reached, self.ran, note, more=more, other_cores=cost.other_cores)


def _launched(settings: Settings, named: str, views: Iterable[str]) -> Row:
    """The time from the launch of the stopped application until each view has merged what was sent meanwhile."""
    launcher.stop(settings, STREAM)
    return _recovered(settings, f"launch until every view has merged, {named}", views, lambda: None)


def _killed(settings: Settings, named: str, views: Iterable[str]) -> Row:
    """The time from `kill -9` of the application's processes until each view has merged what was sent after it."""

    def kill() -> None:
        with connect(settings) as connection:
            for each in launcher.application_processes(application.load_status(connection, STREAM)):
                each.kill()

    return _recovered(settings, f"kill -9 until every view is fresh, {named}", views, kill)


def _recovered(settings: Settings, job: str, views: Iterable[str], interrupt: Callable[[], None]) -> Row:
    """The time from the interruption until every view has merged some events, if the application starts at once."""
    began = time.time()
    interrupt()
    send(settings, make_traffic(FAST, _RECOVERED_EVENTS / FAST), FAST, None)
    # The launcher runs in this process, as it does in an Airflow task, and needs Airflow's connection to Spark.
    os.environ |= {
        "AIRFLOW_HOME": str(settings.home / "bench-airflow"),
        f"AIRFLOW_CONN_{SPARK.upper()}": json.dumps({"conn_type": "spark", "host": settings.spark_master}),
    }
    launcher.ensure_desired_state(settings, STREAM)
    wait_until_merged(settings, views, job)
    return Row(job, OURS, 0.0, "all on", "the launcher starts it at once", more={"seconds": time.time() - began})


def _places(connection: Connection) -> dict[str, dict[Place, deque[tuple[int, float]]]]:
    """For each view, no marked record yet in each partition that it reads."""
    found = defaultdict[str, dict[Place, deque[tuple[int, float]]]](dict)
    for view, topic, partition, _ in connection.execute(_POSITIONS).fetchall():
        found[str(view)][str(topic), int(str(partition))] = deque()
    return found


def wait_until_merged(settings: Settings, views: Iterable[str], what: str) -> None:
    """Wait until these views have merged every event that is in the log now."""
    ends = topics.end_offsets(settings, generator.TOPICS)
    places = [(t, p, end) for t, p in ends.partitions() if (end := ends.at(t, p))]
    reads = {view: catalogue.load_view(view, settings.views_folder).reads for view in views}
    with connect(settings, autocommit=True) as connection:
        for _ in every(_LOOK_SECONDS, within=_PATIENCE_SECONDS, what=what):
            rows = connection.execute(_POSITIONS).fetchall()
            reached = {(view, topic, partition): int(str(at)) for view, topic, partition, at in rows}
            if all(reached.get((view, t, p), 0) >= end for view in reads for t, p, end in places if t in reads[view]):
                return


def _merges(connection: Connection) -> int:
    row = connection.execute("SELECT coalesce(sum(merges), 0)::bigint FROM truelog.merge_tally").fetchone()
    return int(str(row and row[0]))


def _reasons(connection: Connection) -> dict[str, str]:
    """Why views are stalled. A row that says only how late such a view is would hide a defect."""
    return {each.view: each.reason for each in view_statuses(connection) if each.state == STALLED}


def _meter(settings: Settings) -> Meter:
    """The services, and the processes of each application: Airflow starts it in a session, which has several trees."""
    applications: dict[str, list[int]] = {}
    with connect(settings) as connection:
        for name in application.application_names(settings):
            found = launcher.application_processes(application.load_status(connection, name))
            pids = {each.pid for each in found}
            applications[name] = [each.pid for each in found if each.ppid() not in pids]
    return Meter({each.name: each.pid for each in runtime.status(settings) if each.pid}, applications=applications)


def make_traffic(rate: int, seconds: float) -> list[OutgoingRecord]:
    return list(generator.generate(seed=_SEED, begin=datetime.now(UTC), rate=rate, seconds=seconds, social=SOCIAL))


def send(settings: Settings, traffic: Sequence[OutgoingRecord], rate: int, marks: Marks | None) -> None:
    """Send traffic at the rate. After the warm-up, mark some of its records."""
    kafka, begin, sent = make_producer(settings), time.time(), 0
    for now in every(_BEAT_SECONDS, within=len(traffic) / rate + _PATIENCE_SECONDS, what="sending"):
        due = min(int((now - begin) * rate), len(traffic))
        for number, record in enumerate(traffic[sent:due], sent):
            is_marked = marks is not None and number > rate * _WARM_SECONDS and number % _MARKED_EVERY == 0
            acknowledge = marks.acknowledge if marks is not None and is_marked else None
            kafka.produce(record.topic, record.value, record.key, on_delivery=acknowledge)
        sent = due
        kafka.poll(0)
        if sent == len(traffic):
            break
    if marks is not None:
        marks.sent = time.time()
    kafka.flush()
