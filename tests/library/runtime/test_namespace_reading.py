"""An environment that reads the events of another one: it is set up, refuses to write them, and is destroyed alone."""

from collections.abc import Iterator
from typing import Any

import pytest

from runtime import foreign_names, namespace, own_services, services
from tests.command import truelog
from tests.library.two_environments import outside
from tests.library.whole_environments import destroyed_afterwards, drop_databases, reading, set_up
from truelog.control import event_registry
from truelog.log import access, range_reader, topics
from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
from truelog.log.positions import Range
from truelog.schema.event_version import judge
from truelog.support.errors import ReadsOnly
from truelog.support.settings import KafkaUser, Settings

TOPIC = "page_view"
SENT = b'{"event_id": "a", "occurred_at": "2026-01-01T00:00:00Z", "visitor_id": "ann", "url": "https://a.example/"}'
OF_EVENTS = {"ticks", "commands", "collector"}


@pytest.fixture(scope="module")
def red(platform: Settings) -> Iterator[Settings]:
    with destroyed_afterwards(set_up(platform, "red")) as made:
        with KafkaSender(made, [TOPIC]) as sender:
            for number in range(4):
                sender.send(OutgoingRecord(TOPIC, str(number), SENT))
        yield made


@pytest.fixture(scope="module")
def blue(platform: Settings, red: Settings) -> Iterator[Settings]:
    made = reading(platform, "blue", red)
    yield made
    drop_databases(made)


def rows(settings: Settings) -> list[dict[str, Any]]:
    """The records of the topic, decoded by what is registered."""
    ends = topics.committed_ends(topics.client(settings), [TOPIC])
    event_type = event_registry.confirmed_types(settings)[TOPIC]
    ranges = [Range(t, p, 0, ends.at(t, p)) for t, p in ends.partitions() if ends.at(t, p)]
    batches = range_reader.read(settings.kafka(KafkaUser.READER), ranges)
    found = [row for batch in batches for row in judge(event_type, batch, ("visitor_id",)).to_pylist()]
    return [*found, {"ends": ends.as_json(), "ids": dict(ends.ids)}]


def rules(settings: Settings) -> set[str]:
    """The rules of all environments."""
    found = access._existing(outside(settings))
    return {f"{rule.principal} {rule.operation} {rule.name}" for rule in found}


def given(settings: Settings) -> dict[str, str]:
    names = ("namespace", "reads_namespace", "reads_bucket", "database_name", "airflow_database", "s3_bucket")
    return {f"TRUELOG_{name.upper()}": str(getattr(settings, name)) for name in names}


def test_both_decode_the_same_records_at_the_same_positions(red: Settings, blue: Settings) -> None:
    assert rows(blue) == rows(red)
    assert [each["visitor_id"] for each in rows(blue)[:-1]] == ["ann"] * 4
    assert topics.end_offsets(blue, ["ticks", "erasure"]) == topics.end_offsets(red, ["ticks", "erasure"])


def test_it_has_no_event_topics_and_no_rule_to_write_one(blue: Settings) -> None:
    found = namespace.holdings(blue)
    assert found.topics == []
    assert len(found.principals) == len(KafkaUser) - 1
    about_red = [rule for rule in found.rules if " red." in rule]
    types = event_registry.event_types(blue)
    assert len(about_red) == 2 * len(types)  # to read, and to see the configuration
    assert {rule.split()[0] for rule in about_red} == {"User:blue.truelog-reader"}
    assert {rule.split()[1] for rule in about_red} == {"read", "describe_configs"}
    foreign_names.require_none(blue)


def test_it_has_no_services_that_write_events(red: Settings, blue: Settings) -> None:
    assert {each.name for each in services._wanted(red)} - {each.name for each in services._wanted(blue)} == OF_EVENTS
    own_services.require_wanted(red, OF_EVENTS)
    own_services.require_wanted(blue, {"api", "relay"})
    for name in OF_EVENTS:
        with pytest.raises(ReadsOnly, match=f"the service {name} is a matter of the environment red"):
            own_services.require_wanted(blue, {name})


@pytest.mark.parametrize(
    "words",
    [
        ("forget", "--subject", "visitor_id=ann"),
        ("generate", "--rate", "1", "--seconds", "1"),
        ("limit", "block", "192.0.2.1"),
        ("dead-letters", "replay"),
        ("archive", "accept-cut"),
        ("registry", "keep", TOPIC),
        ("registry", "publish", TOPIC),
    ],
)
def test_commands_that_write_events_say_where_to_ask(blue: Settings, words: tuple[str, ...]) -> None:
    before = rows(blue)
    refused = truelog(*words, **given(blue))
    assert refused.returncode != 0
    assert "is a matter of the environment red: this one only reads its events" in refused.stderr.replace("\n", " ")
    assert rows(blue) == before


def test_it_is_destroyed_and_the_other_has_everything(red: Settings, blue: Settings) -> None:
    before, of_all = (namespace.holdings(red), rows(red)), rules(red)
    destroyed = namespace.destroy(blue)
    assert not any(namespace.holdings(blue).as_dict().values())
    left = rules(red)
    assert left == {rule for rule in of_all if not rule.startswith("User:blue.")}
    assert not any("User:blue." in rule for rule in left)
    after = namespace.holdings(red)
    assert after.topics == before[0].topics
    assert after.principals == before[0].principals
    assert after.rules == [rule for rule in before[0].rules if rule not in destroyed.rules]
    assert rows(red) == before[1]
    with KafkaSender(red, [TOPIC]) as sender:
        sender.send(OutgoingRecord(TOPIC, "k", SENT))
    assert len(rows(red)) == len(before[1]) + 1
