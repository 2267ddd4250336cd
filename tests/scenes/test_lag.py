"""Lag against a real log and a real database: what a poll sees, keeps, publishes and tells, and what became of it.

The readers are made up by hand, in a folder of views of their own: nobody runs them, so that they stand where they
are put.
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
from tests.scenes.conftest import World
from truelog.archive import archive_table
from truelog.control.application import ARCHIVE
from truelog.lag import lag_groups, lag_poll
from truelog.lag.lag import Lag, Partition, lags
from truelog.lag.lag_history import Reading
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.schema.event import load_events
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

TOPIC = "page_view"
THERE, BEHIND, STRANGER, UNMADE = VIEWS = ("lag_there", "lag_behind", "lag_stranger", "lag_unmade")


@pytest.fixture(scope="module")
def ends(world: World) -> Positions:
    """Of a log that has some records in each partition."""
    world.traffic.send(100)
    return topics.end_offsets(world.settings, [TOPIC])


def less(ends: Positions, records: int) -> Positions:
    return Positions({TOPIC: {p: max(0, o - records) for p, o in ends.offsets[TOPIC].items()}}, ends.ids)


def total(parts: dict[Partition, Lag]) -> Lag:
    return Lag(sum(each.events for each in parts.values()), max(each.seconds for each in parts.values()))


def test_who_has_counted_everything_lags_by_nothing(world: World, ends: Positions) -> None:
    [parts] = lags(world.settings, {"one": ends}, ends).values()
    assert parts == dict.fromkeys(ends.partitions(), Lag(0, 0.0))


def test_the_age_is_that_of_the_first_record_still_to_be_counted(world: World, ends: Positions) -> None:
    """Each stands elsewhere in the same partitions, and is told its own lag."""
    began = time.time()
    stands = {"behind": less(ends, 1), "farther": less(ends, 2), "there": ends}
    found = {name: total(parts) for name, parts in lags(world.settings, stands, ends).items()}
    assert {name: lag.events for name, lag in found.items()} == {"behind": 4, "farther": 8, "there": 0}
    assert 0 < found["behind"].seconds <= found["farther"].seconds
    world.traffic.send(1)
    now = topics.end_offsets(world.settings, [TOPIC])
    fresh = total(lags(world.settings, {"there": ends}, now)["there"])
    assert fresh.events == 1
    assert 0 <= fresh.seconds <= time.time() - began + 1
    assert fresh.seconds < found["behind"].seconds + time.time() - began


def test_a_position_past_the_end_is_no_lag(world: World, ends: Positions) -> None:
    [parts] = lags(world.settings, {"past": less(ends, -10)}, ends).values()
    assert set(parts.values()) == {Lag(0, 0.0)}


def test_where_retention_took_the_record_the_age_is_that_of_the_first_one_left(world: World) -> None:
    broker = topics.client(world.settings)
    _make_topic(broker, "dropped", 1)
    producer = Producer({**world.settings.kafka(), "acks": "all"})
    for n in range(10):
        producer.produce("dropped", str(n).encode())
    assert producer.flush(30) == 0
    for cut in broker.delete_records([TopicPartition("dropped", 0, 6)]).values():
        cut.result()
    [parts] = lags(world.settings, {"late": Positions({"dropped": {0: 2}})}, topics.ends(broker, ["dropped"])).values()
    assert parts["dropped", 0].events == 8
    assert 0 < parts["dropped", 0].seconds < 60


def test_large_batches_in_one_partition_do_not_hide_the_records_of_another(world: World) -> None:
    """A broker fills its answer with the first partition's batch, however large, and leaves out what does not fit."""
    broker, partitions = topics.client(world.settings), range(4)
    _make_topic(broker, "large", len(partitions))
    producer = Producer({**world.settings.kafka(), "acks": "all", "linger.ms": 1_000, "batch.size": 1_000_000})
    for _ in range(6_000):
        for partition in partitions:
            producer.produce("large", bytes(1_000), partition=partition)
        producer.poll(0)
    assert producer.flush(30) == 0
    late = Positions({"large": dict.fromkeys(partitions, 0)})
    [parts] = lags(world.settings, {"late": late}, topics.ends(broker, ["large"])).values()
    assert [parts["large", each].events for each in partitions] == [6_000] * len(partitions)
    assert all(each.seconds > 0 for each in parts.values())


def _make_topic(broker: AdminClient, name: str, partitions: int) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    for made in broker.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
        made.result()


@pytest.fixture(scope="module")
def put(world: World, ends: Positions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Views that stand at the end, before it, in a topic that was made again; and one that nobody made."""
    folder = tmp_path_factory.mktemp("views")
    for name in VIEWS:
        (folder / f"{name}.py").touch()
    end = topics.end_offsets(world.settings, [TOPIC])
    with connect(world.settings, autocommit=True) as connection:
        _stand(connection, THERE, end)
        _stand(connection, BEHIND, less(end, 3))
        _stand(connection, STRANGER, Positions(end.offsets, {TOPIC: "another"}))
        yield world.settings.model_copy(update={"views_folder": folder, "applications": {THERE: "other"}})
        for table in ("position", "view"):
            connection.execute(f"DELETE FROM truelog.{table} WHERE view = ANY(%s)".encode(), (list(VIEWS),))
        connection.execute("DELETE FROM truelog.lag_sample WHERE reader = ANY(%s)", (list(VIEWS),))


def _stand(connection: Connection, view: str, at: Positions) -> None:
    connection.execute("INSERT INTO truelog.view (view, version, fingerprint, spark) VALUES (%s, 2, '', '')", (view,))
    with_ticks = Positions({**at.offsets, "ticks": {0: 0}}, {**at.ids, "ticks": "any"})
    for topic, partition in with_ticks.partitions():
        connection.execute(
            "INSERT INTO truelog.position VALUES (%s, 2, %s, %s, %s, %s)",
            (view, topic, partition, with_ticks.ids[topic], with_ticks.at(topic, partition)),
        )


@pytest.fixture(scope="module")
def polled(put: Settings) -> dict[str, Reading]:
    _, readings = lag_poll.poll_once(put, topics.client(put), [TOPIC, "ticks"], lag_poll.polled_views)
    return {each.reader: each for each in readings}


def test_a_poll_sees_each_reader_in_each_partition(polled: dict[str, Reading], ends: Positions) -> None:
    assert {reader: reading.version for reader, reading in polled.items()} == {THERE: 2, BEHIND: 2, STRANGER: 2}
    for reading in polled.values():
        assert set(reading.samples) == set(ends.partitions())  # and not of ticks
    there, behind = polled[THERE].samples.values(), polled[BEHIND].samples.values()
    assert {(each.events, each.seconds) for each in there} == {(0, 0.0)}
    assert {(each.events, each.end - each.position, each.retention) for each in behind} == {(3, 3, 7 * 86_400)}
    assert all(0 < each.seconds < 600 for each in behind)
    [blind] = {each.blind for each in polled[STRANGER].samples.values()}
    assert "page_view was deleted and made again" in blind


def test_the_archive_is_a_reader_too(world: World) -> None:
    """Where no scene has archived anything yet, one topic has an empty table: none of it is archived."""
    broker = topics.client(world.settings)
    begins = topics.begins(broker, [TOPIC])
    if not archive_table.archived_positions(world.settings, [TOPIC]).offsets:
        with archive_table.open_catalog(world.settings) as catalog:
            archive_table.ensure(catalog, load_events()[TOPIC], begins.ids[TOPIC], begins.offsets[TOPIC])
    found, [reading] = lag_poll.poll_once(world.settings, broker, [TOPIC], lag_poll.polled_archive)
    assert (reading.reader, reading.version, list(found)) == (ARCHIVE, 0, [ARCHIVE])
    at, end = found[ARCHIVE].at, topics.ends(broker, [TOPIC])
    seen = {place: sample for place, sample in reading.samples.items() if place[0] == TOPIC}
    assert {place: (each.position, each.end) for place, each in seen.items()} == {
        place: (at.at(*place), end.at(*place)) for place in end.partitions()
    }
    assert {each.seconds > 0 for each in seen.values() if each.events} <= {True}


def test_positions_are_published_as_consumer_groups(put: Settings) -> None:
    """The stock client reads them, each in the group of its application and view."""
    broker = topics.client(put)
    found = lag_poll.polled_views(put)
    lag_groups.publish_groups(put, broker, {name: reader.at for name, reader in found.items()})
    assert lag_groups.group_name(put, ARCHIVE) == "truelog.archive"
    for view, group in ((THERE, f"truelog.other.{THERE}"), (BEHIND, f"truelog.stream.{BEHIND}")):
        answers = broker.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        committed = {(each.topic, each.partition): each.offset for each in answers[group].result().topic_partitions}
        assert committed == {place: found[view].at.at(*place) for place in found[view].at.partitions()}


@pytest.fixture(scope="module")
def service(world: World) -> Iterator[Settings]:
    runtime.up(world.settings, ["lag"], tethered=True)
    yield world.settings
    keeper.stop(world.settings, "lag")


def test_the_service_sees_every_reader_and_tells_prometheus(service: Settings) -> None:
    """Its two polls, which begin side by side, do not get in each other's way."""
    logged = log_file(service, "lag").read_text()
    assert "declare" not in logged
    assert "Traceback" not in logged
    connection = HTTPConnection(service.lag_host, service.lag_port, timeout=10)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {service.reader_key.get_secret_value()}"})
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    for name in ("truelog_lag_events", "truelog_position", "truelog_lag_sampled_timestamp_seconds"):
        assert f'{name}{{application="archive",partition="0",reader="archive",topic="{TOPIC}"}}' in {
            line.rpartition(" ")[0] for line in lines
        }
