"""The archive is killed, suspended and compacted, but contains every log record exactly once, byte for byte."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from pyspark.sql import SparkSession

from tests.beds.world import World
from tests.command import answer
from tests.deadline import deadline
from tests.deleted_records import delete_records
from tests.library.listener import listening
from tests.library.relay.received import received
from tests.scenes.applications import Application, start
from tests.scenes.archive_contents import in_the_archive, in_the_log, table
from truelog.archive import reader as archive_reader
from truelog.archive.audit import Evidence, OffsetGap
from truelog.archive.audit_evidence import run_audit
from truelog.archive.table import archived_positions, identifier, open_catalog
from truelog.control import event_registry
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.maintenance import upkeep
from truelog.relay.spans import nanoseconds
from truelog.schema.loading.events import load_events
from truelog.services.ticks import service as ticks
from truelog.storage import bucket
from truelog.support.errors import ArchiveBehind
from truelog.support.settings import KafkaUser

# `library/archive/test_commit.py` proves without Spark that a commit compares positions. The shop kills an archive.
POINTS = ("archive.files_written", "archive.before_commit", "archive.after_commit")
DAY_SECONDS = 5
TOPIC = "page_view"
OTHER_TOPIC = "search"  # loses records, while the archive goes on with `page_view`

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("no_archive")]


def run(world: World, fault: str | None = None, **environment: str) -> Application:
    return start(world.settings, "archive.py", fault=fault, TRUELOG_ARCHIVE_TRIGGER_SECONDS="0.5", **environment)


def send(world: World, records: int) -> None:
    """Send page views, some malformed, and unusual records: a tombstone, no key, odd headers."""
    world.traffic.send(records)
    world.traffic.flush()
    producer = Producer(world.settings.kafka())
    producer.produce(TOPIC, None, b"gone", headers=[("trace", b"\x00\xff"), ("trace", None)])
    producer.produce(TOPIC, b"\xff\xfe not text", None)
    assert producer.flush(deadline(30)) == 0


def catch_up(world: World, application: Application) -> None:
    ends = topics.end_offsets(world.settings, load_events())
    application.wait(lambda: "archiving from" in application.tail(), 60, "the archive to begin")
    application.wait(
        lambda: archived_positions(world.settings, load_events()).covers(ends),
        60,
        "the archive at the end of the log",
    )


@contextmanager
def archiving(world: World, **environment: str) -> Iterator[Application]:
    """A running archive that must catch up and exit with 0. If the test fails, the archive is killed."""
    running = run(world, **environment)
    try:
        yield running
        catch_up(world, running)
        assert running.end() == 0
    finally:
        running.die()


def archive_once(world: World) -> None:
    with archiving(world):
        pass


@pytest.fixture
def all_archived(world: World) -> None:
    """Archive what the log contains, unless an earlier test did, so that each test also passes alone."""
    if not sum(topics.end_offsets(world.settings, [TOPIC]).offsets[TOPIC].values()):
        send(world, 200)
    if not archived_positions(world.settings, load_events()).covers(topics.end_offsets(world.settings, load_events())):
        archive_once(world)


def require_archive_equals_log(world: World) -> None:
    assert in_the_archive(world, TOPIC) == in_the_log(world, TOPIC)
    report = run_audit(world.settings)
    assert report.verdict == "SOUND", report.faults


def test_killed_during_a_commit(world: World) -> None:
    for point in POINTS:
        send(world, 200)
        running = run(world, fault=f"{point}:1:kill")
        running.wait_kill()
    archive_once(world)
    require_archive_equals_log(world)
    ends = topics.end_offsets(world.settings, load_events())
    assert archived_positions(world.settings, load_events()) == ends


def suspended(world: World, point: str) -> Application:
    """An archive application that is suspended in the middle of a batch."""
    send(world, 200)
    zombie = run(world, fault=f"{point}:1:stop")
    zombie.wait_fault()
    return zombie


def test_suspended_during_a_commit_and_overtaken(world: World) -> None:
    """Each archive wakes up while its successor is suspended at the next point, the last while its successor runs."""
    zombie = world.overtaken("archive", POINTS, partial(suspended, world))
    world.cut_off("archive")
    with archiving(world) as successor:
        send(world, 200)
        catch_up(world, successor)
        zombie.resume()
        zombie.require_refused()
        send(world, 200)
    require_archive_equals_log(world)


def test_positions_survive_compaction_and_expiry(world: World, spark: SparkSession) -> None:
    """Compaction runs between two appends of one archive, and concurrently with its appends."""
    with archiving(world) as running:
        for _ in range(2):
            send(world, 200)
            catch_up(world, running)
        before = archived_positions(world.settings, [TOPIC])
        assert upkeep.compact(spark, identifier(TOPIC), least_files=2) > 0
        upkeep.expire(spark, identifier(TOPIC), older_than=timedelta())
        with open_catalog(world.settings) as catalog:
            [left] = catalog.load_table(identifier(TOPIC)).metadata.snapshots
        assert left.summary is not None
        assert left.summary.operation.value == "replace"
        assert archived_positions(world.settings, [TOPIC]) == before
        require_archive_equals_log(world)

        for _ in range(4):
            send(world, 50)
            upkeep.compact(spark, identifier(TOPIC), least_files=2)
    require_archive_equals_log(world)


def test_a_sampled_record_has_a_span_from_the_log_until_the_archive_has_it(world: World) -> None:
    sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with listening() as receiver:
        with archiving(world, TRUELOG_SPANS_ENDPOINT=receiver.url):
            send(world, 50)
            producer = Producer(world.settings.kafka())
            for value in (sampled[:-1] + "0", sampled):
                producer.produce(TOPIC, b"{}", b"k", headers=[("traceparent", value)])
            assert producer.flush(deadline(30)) == 0
        [span] = received(receiver)
    assert (span.service, span.name, span.parent) == ("truelog-archive", f"archive {TOPIC}", sampled[36:52])
    [row] = [each for each in table(world, TOPIC).to_pylist() if sampled.encode() in str(each["headers"]).encode()]
    assert span.attributes["messaging.kafka.offset"] == row["offset"]
    assert span.begin == nanoseconds(row["broker_time"]) < span.end


@contextmanager
def ticking(world: World) -> Iterator[None]:
    service = start(world.settings, str(Path(ticks.__file__)))
    try:
        yield
    finally:
        service.die()


@pytest.mark.usefixtures("all_archived")
def test_days_close_on_a_quiet_log_and_their_ranges_are_adjacent(world: World) -> None:
    """Only ticks are written, but they close the days of topics without records. Earlier days were longer."""
    short = world.settings.model_copy(update={"log_day_seconds": DAY_SECONDS})
    before = archive_reader.closed_days(short, [TOPIC])
    with archiving(world, TRUELOG_LOG_DAY_SECONDS=str(DAY_SECONDS)) as running, ticking(world):
        running.wait(lambda: len(archive_reader.closed_days(short, [TOPIC])) > len(before) + 1, 60, "two days to close")

    days, rows = archive_reader.closed_days(short, [TOPIC]), table(world, TOPIC).to_pylist()
    reached = None
    for day in days:
        begin, end = archive_reader.day_range(short, [TOPIC], day)
        inside = [r for r in rows if begin.at(TOPIC, r["partition"]) <= r["offset"] < end.at(TOPIC, r["partition"])]
        assert all(r["log_day"] == day for r in inside)
        assert len(inside) == sum(r["log_day"] == day for r in rows)
        if reached is not None:
            gap = [
                r for r in rows if reached.at(TOPIC, r["partition"]) <= r["offset"] < begin.at(TOPIC, r["partition"])
            ]
            assert gap == []
        reached = end
    with pytest.raises(ArchiveBehind, match="still open"):
        archive_reader.day_range(short, [TOPIC], datetime.now(UTC))


@pytest.mark.usefixtures("all_archived")
@pytest.mark.parametrize("from_raw", [False, True], ids=["typed", "from raw"])
def test_a_range_is_read_by_offset(world: World, spark: SparkSession, from_raw: bool) -> None:
    types = {TOPIC: event_registry.event_types(world.settings)[TOPIC]}
    end = archived_positions(world.settings, [TOPIC])
    begin = Positions({TOPIC: {p: o // 3 for p, o in end.offsets[TOPIC].items()}}, end.ids)
    wanted = archive_reader.Wanted.between(begin, end)
    found = archive_reader.read_records(spark, world.settings, types, wanted, from_raw=from_raw).collect()
    assert sorted((r.partition, r.offset) for r in found) == [
        (p, o) for p in end.offsets[TOPIC] for o in range(begin.at(TOPIC, p), end.at(TOPIC, p))
    ]
    urls = {(r.partition, r.offset): r.page_view and r.page_view.url for r in found}
    typed = {(r["partition"], r["offset"]): r["url"] for r in table(world, TOPIC).to_pylist()}
    assert urls == {coordinates: typed[coordinates] for coordinates in urls}
    assert {r.invalid is None for r in found} == {True, False}


@pytest.mark.usefixtures("all_archived")
def test_reading_records_that_are_not_archived_fails(world: World, spark: SparkSession) -> None:
    types, end = {TOPIC: event_registry.event_types(world.settings)[TOPIC]}, archived_positions(world.settings, [TOPIC])
    beyond = Positions({TOPIC: {p: o + 7 for p, o in end.offsets[TOPIC].items()}}, end.ids)
    with pytest.raises(ArchiveBehind, match="28 events behind"):
        archive_reader.read_records(spark, world.settings, types, archive_reader.Wanted.between(Positions(), beyond))
    with pytest.raises(ArchiveBehind, match="28 events behind"):
        archive_reader.wait_for(world.settings, beyond, seconds=1)


@pytest.mark.usefixtures("all_archived")
def test_one_deleted_file_fails_the_audit(world: World) -> None:
    with open_catalog(world.settings) as catalog:
        lost = next(iter(catalog.load_table(identifier(TOPIC)).scan().plan_files())).file.file_path
    s3, key = bucket.s3_client(world.settings), lost.removeprefix(f"s3://{world.settings.s3_bucket}/")
    kept = s3.get_object(Bucket=world.settings.s3_bucket, Key=key)["Body"].read()
    s3.delete_object(Bucket=world.settings.s3_bucket, Key=key)
    report = run_audit(world.settings)
    assert (report.verdict, len(report.faults)) == ("BROKEN", 1)
    assert f"{lost} is missing" in report.faults[0]

    s3.put_object(Bucket=world.settings.s3_bucket, Key=key, Body=kept[:-1])
    assert "bytes instead of" in run_audit(world.settings).faults[0]
    s3.put_object(Bucket=world.settings.s3_bucket, Key=key, Body=kept)
    assert run_audit(world.settings).verdict == "SOUND"


def aborted_and_committed(world: World) -> None:
    """Write to the log an aborted transaction, whose records readers skip, and a committed transaction."""
    producer = Producer({**world.settings.kafka(), "transactional.id": "a scene"})
    producer.init_transactions()
    for finish in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(OTHER_TOPIC, b"{}", partition=0)
        producer.flush()
        finish()


def write_to_partition_1(world: World, records: int) -> None:
    producer = Producer(world.settings.kafka())
    for _ in range(records):
        producer.produce(OTHER_TOPIC, b"{}", partition=1)
    assert producer.flush(deadline(30)) == 0


def drop_by_retention(world: World, end: int) -> None:
    """Write nine records, and drop the records before `end` before they are archived."""
    write_to_partition_1(world, 9)
    place = TopicPartition(OTHER_TOPIC, 1, end)
    delete_records(topics.client(world.settings, KafkaUser.ADMIN), place)


def suspended_topics(world: World) -> dict[str, str]:
    rows = world.ask("SELECT topic, reason FROM truelog.topic_status WHERE application = 'archive'")
    return dict(rows)


def audited(world: World, *, deep: bool = False) -> dict[int, Evidence]:
    """The audit of the other topic's partitions. The archive must be SOUND."""
    report = run_audit(world.settings, deep=deep)
    assert report.verdict == "SOUND", report.faults
    return {each.partition: each for each in report.partitions if each.topic == OTHER_TOPIC}


@pytest.mark.usefixtures("all_archived")
def test_holes_are_explained_and_records_dropped_by_retention_are_a_loss_until_accepted(world: World) -> None:
    """The archive suspends only the topic that lost records, and takes it back while it is running."""
    before = audited(world)[1]
    begin, end = before.position, before.position + 5
    aborted_and_committed(world)
    drop_by_retention(world, end)
    running = run(world, TRUELOG_TOPIC_CHECK_SECONDS="1")
    running.wait(lambda: "archiving from" in running.tail(), 60, "the archive to begin")
    assert suspended_topics(world).keys() == {OTHER_TOPIC}
    assert f"search 1: the log begins at {end}, but the archive ends at {begin}" in suspended_topics(world)[OTHER_TOPIC]
    assert "`truelog archive accept-loss`" in suspended_topics(world)[OTHER_TOPIC]
    send(world, 20)
    ends = topics.end_offsets(world.settings, [TOPIC])
    running.wait(lambda: archived_positions(world.settings, [TOPIC]).covers(ends), 60, "the other topics")
    lost = {"topic": OTHER_TOPIC, "partition": 1, "start": begin, "end": end}
    assert answer("archive", "accept-loss") == {"lost": [lost]}
    catch_up(world, running)
    assert suspended_topics(world) == {}
    assert answer("archive", "accept-loss") == {"lost": []}
    assert running.end() == 0
    parts = audited(world, deep=True)
    assert {hole.why for hole in parts[0].holes} == {"transaction"}
    assert parts[1].holes == (*before.holes, OffsetGap(begin, end, "accepted loss"))
    assert (parts[1].committed, parts[1].position) == (before.committed + 4, end + 4)


@pytest.mark.usefixtures("all_archived")
def test_a_deep_audit_finds_changed_bytes(world: World) -> None:
    """Rows are changed directly in the table: coordinates and counts are right, but the bytes are wrong."""
    if not audited(world)[1].committed:
        write_to_partition_1(world, 3)
        archive_once(world)
    assert audited(world, deep=True)[1].committed
    with open_catalog(world.settings) as catalog:
        table = catalog.load_table(identifier(OTHER_TOPIC))
        kept = table.scan("partition = 1").to_arrow()
        changed = kept.set_column(
            kept.schema.get_field_index("value"), "value", pa.array([b"[]"] * len(kept), pa.binary())
        )
        table.overwrite(changed.cast(table.schema().as_arrow()), "partition = 1")
        report = run_audit(world.settings, deep=True)
        # The log no longer has the records that an earlier scene dropped by retention.
        left = sorted(offset for partition, offset in in_the_log(world, OTHER_TOPIC) if partition == 1)
        assert report.faults == (f"search 1: {len(left)} records differ from the log, the first at {left[0]}",)
        table.overwrite(kept.cast(table.schema().as_arrow()), "partition = 1")
    assert run_audit(world.settings, deep=True).verdict == "SOUND"
