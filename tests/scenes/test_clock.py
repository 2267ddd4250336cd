"""The clock of the log jumps while the tick service and the applications are running."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.beds.world import World, known
from tests.command import answer, truelog
from tests.deadline import deadline
from tests.scenes import jumping_ticks
from tests.scenes.applications import Application, start
from tests.scenes.declared import EVENT, copy_events
from truelog.alerts import scheduler as alert_scheduler
from truelog.alerts.sources import resources as alert_resources
from truelog.archive import log_day
from truelog.archive import reader as archive_reader
from truelog.archive.table import archived_positions
from truelog.control import event_files
from truelog.log import topics
from truelog.schema.names import TICKS
from truelog.storage.database import connect
from truelog.support.settings import KafkaUser, Settings

TOPIC, KEPT = "clock_parcel", "clock_parcels"
DAYS = timedelta(days=1)
VIEW = f'''"""Scans by parcel and hour, for a day."""
from pyspark.sql import DataFrame, functions as F
from truelog import Sum, View

def transform(parcels: DataFrame) -> DataFrame:
    return parcels.select("parcel", F.date_trunc("hour", "occurred_at").alias("hour"), F.lit(1).alias("scans"))

VIEW = View(
    reads=("{TOPIC}",), transform=transform, key=("parcel", "hour"), measures={{"scans": Sum()}}, keep="1 day"
)
'''


@pytest.fixture
def declared(world: World, tmp_path: Path) -> Iterator[Settings]:
    """The platform with one view that keeps its rows for a day, and no ticks yet."""
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / f"{KEPT}.py").write_text(VIEW)
    events = copy_events(tmp_path)
    (events / f"{TOPIC}.py").write_text(EVENT)
    more = {"events_folder": events, "views_folder": tmp_path / "views", "archive_trigger_seconds": 1}
    with known(world.settings, **more) as settings:
        assert event_files.register_files(settings) == {}
        yield settings


def send(settings: Settings, parcel: str, occurred_at: datetime) -> None:
    event = {"event_id": parcel, "occurred_at": occurred_at.isoformat(), "parcel": parcel, "grams": 1}
    producer = Producer(settings.kafka())
    producer.produce(TOPIC, json.dumps(event).encode(), partition=0)
    assert producer.flush(deadline(30)) == 0


def configure(settings: Settings, **values: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
    broker = topics.client(settings, KafkaUser.ADMIN)  # in a variable, because its futures end with the client
    broker.incremental_alter_configs([resource])[resource].result()


def send_with_a_wrong_broker_time(settings: Settings, moment: datetime) -> None:
    """The topic has producers' times while the record is sent, and the broker's times again before anybody looks."""
    configure(settings, message_timestamp_type="CreateTime", message_timestamp_after_max_ms=str(2**62))
    producer = Producer({**settings.kafka(), "acks": "all"})
    producer.produce(TOPIC, b"wrong time", partition=0, timestamp=int(moment.timestamp() * 1000))
    assert producer.flush(deadline(30)) == 0
    configure(settings, message_timestamp_type="LogAppendTime")


def set_clock(file: Path, error: timedelta) -> None:
    """Set the error of the tick service's clock."""
    new = file.with_suffix(".new")
    new.write_text(str(error.total_seconds()))
    new.replace(file)


def parcels(world: World) -> set[str]:
    if world.ask("SELECT to_regclass(%s)", f"views.{KEPT}") == [(None,)]:
        return set()
    return {str(parcel) for (parcel,) in world.ask(f"SELECT parcel FROM views.{KEPT}")}


def alerts(settings: Settings) -> list[str]:
    """The open alerts about the clock, as the command shows them after the source has looked."""
    [source] = [each for each in alert_scheduler.SOURCES if each.kinds == alert_resources.CLOCK_KINDS]
    alert_scheduler.watch_once(settings, source)
    shown = json.loads(truelog("alerts", "--json").stdout)["alerts"]  # the exit code is about the other sources
    return [each["key"] for each in shown if each["key"].startswith("clock_jumped")]


def newest_day(settings: Settings) -> int:
    """The newest log day that has begun in any partition of the topic."""
    with connect(settings) as connection:
        days = log_day.load_days(connection, topics.topic_ids(settings, [TOPIC]))
    return max((start.day for starts in days.by_partition.values() for start in starts), default=-1)


def archive_all(archive: Application, settings: Settings, *names: str) -> None:
    ends = topics.end_offsets(settings, names)
    archive.wait(lambda: archived_positions(settings, names).covers(ends), 60, "the archive")


@pytest.mark.nightly
def test_a_jump_holds_expiry_and_log_days_until_it_is_confirmed(
    world: World, declared: Settings, tmp_path: Path
) -> None:
    """The tick service's clock is two days late, and jumps to the right time. A record has a time in the far future."""
    error, present = tmp_path / "error", datetime.now(UTC)
    set_clock(error, -2 * DAYS)
    ticking = start(declared, str(Path(jumping_ticks.__file__)), str(error))
    ticking.wait(lambda: topics.end_offsets(declared, [TICKS]).at(TICKS, 0) > 0, 30, "the first tick")
    send_with_a_wrong_broker_time(declared, present + 30 * DAYS)
    send(declared, "old", present - 1.25 * DAYS)
    archive, stream = start(declared, "archive.py"), start(declared, "stream.py")
    stream.wait(lambda: parcels(world) == {"old"}, 90, "the first parcel")
    archive_all(archive, declared, TOPIC, TICKS)
    held_day = newest_day(declared)
    assert held_day <= (present - DAYS).timestamp()  # neither the wrong time nor the jump to come began a day

    set_clock(error, timedelta())
    ticking.wait(lambda: alerts(declared) == ["clock_jumped/log"], 30, "the alert")
    send(declared, "new", present)
    stream.wait(lambda: parcels(world) == {"old", "new"}, 60, "the new parcel, and no expiry")
    ticks = topics.end_offsets(declared, [TICKS])
    archive_all(archive, declared, TOPIC, TICKS)
    ticking.wait(lambda: topics.end_offsets(declared, [TICKS]).at(TICKS, 0) > ticks.at(TICKS, 0), 30, "more ticks")
    assert newest_day(declared) == held_day
    closed = set(archive_reader.closed_days(declared, [TOPIC]))
    assert alerts(declared) == ["clock_jumped/log"]

    confirmed = truelog("clock", "confirm")
    assert confirmed.returncode == 0, confirmed.stderr
    assert confirmed.stdout.startswith("confirmed: the clock of the log goes from ")
    stream.wait(lambda: parcels(world) == {"new"}, 60, "the old parcel to expire")
    day = log_day.day_of(present, declared.log_day_seconds)
    archive.wait(lambda: newest_day(declared) >= day, 60, "the present log day")
    assert newest_day(declared) <= time.time()
    assert log_day.as_datetime(held_day) in {*archive_reader.closed_days(declared, [TOPIC])} - closed
    ticking.wait(lambda: alerts(declared) == [], 90, "the alert to close")
    assert answer("clock", "confirm") == {"held": False, "newest": None, "machine": None}
    assert (stream.end(), archive.end()) == (0, 0)
    ticking.die()
