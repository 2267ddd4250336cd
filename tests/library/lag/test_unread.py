"""Lag with a real log and a real database: what a poll measures, stores and publishes.

The readers are rows written by hand, with a views folder of their own. No process is running these views, so their
positions do not change.
"""

import time
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import runtime
from runtime import keeper
from runtime.service import log_file
from tests.builders.views import a_view, merged_to
from tests.deadline import deadline, until
from tests.deleted_records import delete_records
from tests.scenes.traffic import Traffic, messages_in_the_log
from truelog.archive import table as archive_table
from truelog.control.application import ARCHIVE
from truelog.lag import groups as lag_groups
from truelog.lag import history as lag_history
from truelog.lag import poll as lag_poll
from truelog.lag.history import ReaderPoll
from truelog.lag.poll import PolledReader
from truelog.lag.unread import Lag, Partition, lags
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.schema.loading.events import load_events
from truelog.serving import status as serving_status
from truelog.storage.database import Connection, connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings

TOPIC = "page_view"
AT_END, BEHIND, OTHER_TOPIC, UNMADE = VIEWS = ("lag_at_end", "lag_behind", "lag_other_topic", "lag_unmade")


@pytest.fixture(scope="module")
def traffic(platform: Settings) -> Traffic:
    return Traffic(platform)


@pytest.fixture(scope="module")
def ends(platform: Settings, traffic: Traffic) -> Positions:
    """The end offsets of a log with records in each partition."""
    traffic.send(100)
    return topics.end_offsets(platform, [TOPIC])


def less(ends: Positions, records: int) -> Positions:
    return Positions({TOPIC: {p: max(0, o - records) for p, o in ends.offsets[TOPIC].items()}}, ends.ids)


def total(parts: dict[Partition, Lag]) -> Lag:
    return Lag(sum(each.events for each in parts.values()), max(each.seconds for each in parts.values()))


def test_a_reader_at_the_end_has_no_lag(platform: Settings, ends: Positions) -> None:
    [parts] = lags(platform, {"one": ends}, ends).values()
    assert parts == dict.fromkeys(ends.partitions(), Lag(0, 0.0))


def unread_since(settings: Settings, at: Positions, topic: str = TOPIC) -> dict[Partition, float]:
    """The time of the first unread record of each partition that has one, as a standard client reads it."""
    found: dict[Partition, float] = {}
    for message in messages_in_the_log(settings, topic):
        partition, offset = int(str(message.partition())), int(str(message.offset()))
        if offset >= at.at(topic, partition):
            found.setdefault((topic, partition), message.timestamp()[1] / 1000)
    return found


def test_the_lag_in_seconds_is_the_age_of_the_first_unread_record(
    platform: Settings, traffic: Traffic, ends: Positions
) -> None:
    """Readers at different positions of the same partitions get different lags."""
    traffic.send(1)
    readers = {"behind": less(ends, 1), "farther": less(ends, 2), "at_end": ends}
    before, now = time.time(), topics.end_offsets(platform, [TOPIC])
    found = lags(platform, readers, now)
    after = time.time()
    assert {name: total(parts).events for name, parts in found.items()} == {"behind": 5, "farther": 9, "at_end": 1}
    for name, parts in found.items():
        since = unread_since(platform, readers[name])
        assert {part for part, lag in parts.items() if lag.events} == since.keys()
        assert all(before - since[part] <= parts[part].seconds <= after - since[part] for part in since), name
        assert {lag.seconds for part, lag in parts.items() if part not in since} <= {0.0}


def test_a_position_past_the_end_is_no_lag(platform: Settings, ends: Positions) -> None:
    [parts] = lags(platform, {"past": less(ends, -10)}, ends).values()
    assert set(parts.values()) == {Lag(0, 0.0)}


def test_if_retention_dropped_the_record_the_age_is_that_of_the_first_remaining(platform: Settings) -> None:
    broker = topics.client(platform, KafkaUser.ADMIN)
    _make_topic(broker, "dropped", 1)
    producer = Producer({**platform.kafka(), "acks": "all"})
    for n in range(10):
        producer.produce("dropped", str(n).encode())
    assert producer.flush(deadline(30)) == 0
    delete_records(broker, TopicPartition("dropped", 0, 6))
    before, late = time.time(), Positions({"dropped": {0: 2}})
    [parts] = lags(platform, {"late": late}, topics.ends(broker, ["dropped"])).values()
    after, since = time.time(), unread_since(platform, late, "dropped")["dropped", 0]
    assert parts["dropped", 0].events == 8
    assert before - since <= parts["dropped", 0].seconds <= after - since


def test_large_batches_in_one_partition_do_not_hide_the_records_of_another(platform: Settings) -> None:
    """A broker's response always contains the first partition's batch, whatever its size; other batches must fit."""
    broker, partitions = topics.client(platform, KafkaUser.ADMIN), range(4)
    _make_topic(broker, "large", len(partitions))
    producer = Producer({**platform.kafka(), "acks": "all", "linger.ms": 1_000, "batch.size": 1_000_000})
    for _ in range(6_000):
        for partition in partitions:
            producer.produce("large", bytes(1_000), partition=partition)
        producer.poll(0)
    assert producer.flush(deadline(30)) == 0
    late = Positions({"large": dict.fromkeys(partitions, 0)})
    [parts] = lags(platform, {"late": late}, topics.ends(broker, ["large"])).values()
    assert [parts["large", each].events for each in partitions] == [6_000] * len(partitions)
    assert all(each.seconds > 0 for each in parts.values())


def _make_topic(broker: AdminClient, name: str, partitions: int) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    for made in broker.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
        made.result()


@pytest.fixture(scope="module")
def readers(platform: Settings, ends: Positions, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Views at the end of the log, behind the end, and in a recreated topic, and a view without a table."""
    folder = tmp_path_factory.mktemp("views")
    for name in VIEWS:
        (folder / f"{name}.py").touch()
    end = topics.end_offsets(platform, [TOPIC])
    with connect(platform, autocommit=True) as connection:
        _insert(connection, AT_END, end)
        _insert(connection, BEHIND, less(end, 3))
        _insert(connection, OTHER_TOPIC, Positions(end.offsets, {TOPIC: "another"}))
    return platform.model_copy(update={"views_folder": folder, "applications": {AT_END: "other"}})


def _insert(connection: Connection, view: str, at: Positions) -> None:
    a_view(connection, view, 2)
    merged_to(connection, view, Positions({**at.offsets, "ticks": {0: 0}}, {**at.ids, "ticks": "any"}), 2)


@pytest.fixture(scope="module")
def polled(readers: Settings) -> dict[str, ReaderPoll]:
    _, readings = lag_poll.poll_once(readers, topics.client(readers), [TOPIC, "ticks"], lag_poll.polled_views)
    return {each.reader: each for each in readings}


def test_a_poll_sees_each_reader_in_each_partition(
    platform: Settings, polled: dict[str, ReaderPoll], ends: Positions
) -> None:
    assert {reader: reading.version for reader, reading in polled.items()} == {AT_END: 2, BEHIND: 2, OTHER_TOPIC: 2}
    for reading in polled.values():
        assert set(reading.samples) == set(ends.partitions())  # without ticks
    at_end, behind = polled[AT_END].samples.values(), polled[BEHIND].samples.values()
    assert {(each.events, each.seconds) for each in at_end} == {(0, 0.0)}
    assert {(each.events, each.end - each.position, each.retention) for each in behind} == {(3, 3, 7 * 86_400)}
    at = Positions({TOPIC: {partition: each.position for (_, partition), each in polled[BEHIND].samples.items()}})
    since = unread_since(platform, at)
    assert all(0 < each.seconds <= time.time() - since[part] for part, each in polled[BEHIND].samples.items())
    [blind] = {each.blind for each in polled[OTHER_TOPIC].samples.values()}
    assert "page_view was deleted and created again" in blind


def test_the_age_of_a_view_is_the_age_of_its_first_unread_record(
    readers: Settings, polled: dict[str, ReaderPoll]
) -> None:
    with connect(readers) as connection:
        lag_history.append(connection, polled.values(), 3600)
        ages = {view: status.age for view, status in serving_status.serving_statuses(connection).items()}
        [(now,)] = connection.execute("SELECT extract(epoch FROM now())::float8").fetchall()
    at_end, behind = (float(str(now)) - polled[view].at for view in (AT_END, BEHIND))
    unread = max(each.seconds for each in polled[BEHIND].samples.values())
    assert ages[AT_END] == pytest.approx(at_end, abs=0.01)
    assert ages[BEHIND] == pytest.approx(behind + unread, abs=0.01)
    assert ages[OTHER_TOPIC] is None


@pytest.fixture(scope="module")
def archived(platform: Settings) -> None:
    """An archive that has a table for the topic, and no records."""
    begins = topics.begins(topics.client(platform), [TOPIC])
    with archive_table.open_catalog(platform) as catalog:
        archive_table.ensure_table(catalog, load_events()[TOPIC], begins.ids[TOPIC], begins.offsets[TOPIC])


@pytest.mark.usefixtures("archived")
def test_the_archive_is_a_reader_too(platform: Settings, ends: Positions) -> None:
    broker = topics.client(platform)
    found, [reading] = lag_poll.poll_once(platform, broker, [TOPIC], lag_poll.polled_archive)
    assert (reading.reader, reading.version, list(found)) == (ARCHIVE, 0, [ARCHIVE])
    at, end = found[ARCHIVE].at, topics.ends(broker, [TOPIC])
    seen = {part: sample for part, sample in reading.samples.items() if part[0] == TOPIC}
    assert {part: (each.position, each.end) for part, each in seen.items()} == {
        part: (at.at(*part), end.at(*part)) for part in end.partitions()
    }
    assert {each.seconds > 0 for each in seen.values() if each.events} == {True}


def test_positions_are_published_as_consumer_groups(readers: Settings) -> None:
    """A standard client reads the positions. Each group is named after its application and view."""
    broker = topics.client(readers)
    found = lag_poll.polled_views(readers)
    lag_groups.publish_groups(readers, broker, {name: reader.at for name, reader in found.items()})
    assert lag_groups.group_name(readers, ARCHIVE) == "truelog.archive"
    for view, group in ((AT_END, f"truelog.other.{AT_END}"), (BEHIND, f"truelog.stream.{BEHIND}")):
        answers = broker.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        committed = {(each.topic, each.partition): each.offset for each in answers[group].result().topic_partitions}
        assert committed == {part: found[view].at.at(*part) for part in found[view].at.partitions()}


@pytest.fixture(scope="module")
def service(platform: Settings, archived: None) -> Iterator[Settings]:
    runtime.up(platform, ["lag"], tethered=True)
    yield platform
    keeper.stop(platform, "lag")


def test_the_service_measures_every_reader_for_prometheus(service: Settings) -> None:
    """The service's two polls run concurrently and do not conflict."""
    logged = log_file(service, "lag").read_text()
    assert "declare" not in logged
    assert "Traceback" not in logged
    address = service.address("lag")
    connection = HTTPConnection(address.host, address.port, timeout=deadline(10))
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {service.reader_key.get_secret_value()}"})
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    for name in ("truelog_lag_events", "truelog_position", "truelog_lag_sampled_timestamp_seconds"):
        assert f'{name}{{application="archive",partition="0",reader="archive",topic="{TOPIC}"}}' in {
            line.rpartition(" ")[0] for line in lines
        }


def test_a_poll_sees_what_an_open_transaction_hides(platform: Settings) -> None:
    """A reader of committed records at the beginning of the transaction is late, and is not to blame."""
    broker, name = topics.client(platform, KafkaUser.ADMIN), "with_transaction"
    _make_topic(broker, name, 1)
    producer = Producer(
        {**platform.kafka(), "acks": "all", "transactional.id": "lag", "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(deadline(30))
    for _ in range(2):  # the first transaction is committed, and the second stays open
        producer.begin_transaction()
        producer.produce(name, b"1", partition=0)
        assert producer.flush(deadline(30)) == 0
        if topics.ends(broker, [name]).at(name, 0) == 1:
            producer.commit_transaction(deadline(30))
    ids = topics.topic_ids(platform, [name])
    readers = {
        at: PolledReader(1, Positions({name: {0: offset}}, ids), None) for at, offset in (("first", 0), ("last", 2))
    }
    found = {each.reader: each for each in lag_poll.poll_once(platform, broker, [name], lambda _: readers)[1]}
    assert [found["last"].samples[name, 0].committed_end, found["last"].samples[name, 0].end] == [2, 3]
    assert {reader: poll.samples[name, 0].hidden for reader, poll in found.items()} == {"first": False, "last": True}
    producer.abort_transaction(deadline(30))
    until(lambda: _require_closed(broker, name), 30, "the end of the transaction")
    _, [poll] = lag_poll.poll_once(platform, broker, [name], lambda _: {"last": readers["last"]})
    assert not poll.samples[name, 0].hidden


def _require_closed(broker: AdminClient, name: str) -> None:
    if topics.committed_ends(broker, [name]) != topics.ends(broker, [name]):
        raise ServiceDown("a transaction is open")
