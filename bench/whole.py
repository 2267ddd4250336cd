"""The whole platform with chosen views, Airflow included: what it costs, and how fresh every view is.

Traffic of all event types is sent at a steady rate. Some of its records are marked: a view is as fresh as the time from
the acknowledgement of such a record to the moment when the view's positions include it. A merge changes the rows and
the positions in one transaction.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from confluent_kafka import KafkaError, KafkaException, Message

import runtime
from bench.cpu import Meter, used
from bench.freshness import percentiles
from bench.ground import complete, services
from bench.row import OURS, Ran, Row
from tests.beat import every, first
from tests.beds.world import known
from tests.chosen_views import copy_views
from tests.scenes.applications import start
from truelog.apps import launcher
from truelog.control import application
from truelog.control.application import STREAM
from truelog.log import topics
from truelog.log.kafka_producer import OutgoingRecord, make_producer
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings
from truelog.traffic import generator
from truelog.views import catalogue

SLOW, FAST, SOCIAL = 200, 2_000, 0.5  # events per second, and the share of events that are not of the shop

_MARKED_EVERY = 50
_BEAT_SECONDS, _LOOK_SECONDS = 0.01, 0.05
_WARM_SECONDS, _PATIENCE_SECONDS = 60.0, 300.0
_SEED = 17
_RECOVERED_EVENTS = 1_000
_POSITIONS = "SELECT view, topic, partition, next_offset FROM truelog.position"

Place = tuple[str, int]  # topic and partition


def run(settings: Settings, views: Sequence[str], seconds: float, rates: Sequence[int]) -> Iterator[Row]:
    """The rows of a platform that has only these views, all of them in the default application."""
    folder = settings.home / "chosen-views"
    folder.mkdir()
    copy_views(folder, *views)
    streamed = [view for view in views if not catalogue.load_view(view).batch_only]
    named = f"the whole platform with {len(views)} views"
    with known(settings, views_folder=folder):
        changed = Settings()
        complete(changed)
        send(changed, make_traffic(rates[-1], _WARM_SECONDS), rates[-1], None)
        complete(changed)  # Airflow and the applications have read the warm-up
        measured = Measured(changed, named, _meter(changed), "all on")
        yield measured.idle(seconds)
        for rate in rates:
            yield from measured.fresh(rate, seconds)
        yield _launched(changed, named, streamed)
        yield _killed(changed, named, streamed)


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
            within = _WARM_SECONDS + seconds + _PATIENCE_SECONDS
            for _ in every(_LOOK_SECONDS, within=within, what="the views to reach all marked records"):
                marks.look(connection)
                if not sender.is_alive() and marks.all_reached:
                    break
            merges = _merges(connection) - merges
        cost = used(before, self.meter.read())
        reached = len(traffic) / (marks.sent - before.at)
        cores = sum(cost.seconds.values()) / cost.wall
        yield Row(
            f"{named}: all processes",
            OURS,
            reached,
            self.ran,
            "until every view has merged the last event",
            more={"events": len(traffic), "seconds": cost.wall, "cores": cores, "merges": merges},
            cpu_us_per_event=cost.per_event(len(traffic)),
            other_cores=cost.other_cores,
        )
        for view, delays in sorted(marks.delays.items()):
            ordered = sorted(delays)
            note = f"acknowledged to merged, {len(ordered)} marked events, polled every {_LOOK_SECONDS * 1000:.0f} ms"
            job, more = f"{named}: freshness of {view}", percentiles(ordered)
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
    reads = {view: catalogue.load_view(view).reads for view in views}
    with connect(settings, autocommit=True) as connection:
        for _ in every(_LOOK_SECONDS, within=_PATIENCE_SECONDS, what=what):
            rows = connection.execute(_POSITIONS).fetchall()
            reached = {(view, topic, partition): int(str(at)) for view, topic, partition, at in rows}
            if all(reached.get((view, t, p), 0) >= end for view in reads for t, p, end in places if t in reads[view]):
                return


def _merges(connection: Connection) -> int:
    row = connection.execute("SELECT coalesce(sum(merges), 0)::bigint FROM truelog.merge_tally").fetchone()
    return int(str(row and row[0]))


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
