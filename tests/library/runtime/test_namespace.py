"""Three environments on one Kafka, PostgreSQL and object store. One is destroyed, and the others do not notice.

`red` and `red2` have namespaces, and the first is the beginning of the second. The environment of the file has none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from runtime import foreign_names, namespace, postgresql, source_database
from tests.command import answer, truelog
from tests.deadline import deadline, until
from tests.library.whole_environments import drop_databases, set_up
from truelog.capture import source_table
from truelog.control import application, lease
from truelog.kafka.producer import open_producer
from truelog.lag import groups, unread
from truelog.log import access, output_topic, range_reader, topics
from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
from truelog.log.positions import Positions, Range
from truelog.schema.loading.events import load_events
from truelog.storage import bucket
from truelog.storage.database import connect
from truelog.support.errors import Fenced, NotSetUp, ServiceDown
from truelog.support.settings import ANALYST, API_ROLE, KafkaUser, Settings

TOPIC, OUTPUT = "page_view", "view.cart.v1"
CUSTOMERS = load_events()["customers"]
ROLES = ("airflow", "analyst", "api", "api_service", "capture", "catalog", "collector", "readers", "stager")
LIMITED = [user for user in KafkaUser if user is not KafkaUser.ADMIN]


@dataclass(frozen=True)
class State:
    """What an environment has, as its own clients see it."""

    holdings: dict[str, Any]
    ends: Positions
    records: list[bytes]
    lag: int
    rows: list[Any]
    objects: list[str]


def use(settings: Settings) -> None:
    """Traffic, a view, an output with its relay, a published group, a captured table and an object."""
    with KafkaSender(settings, [TOPIC]) as sender:
        for number in range(len(settings.namespace)):
            sender.send(OutgoingRecord(TOPIC, "k", f"{settings.namespace} {number}".encode()))
    with connect(settings, autocommit=True) as connection:
        connection.execute("CREATE TABLE views.shown AS SELECT current_database() AS name")
    output_topic.create_topic(settings, KafkaUser.RELAY, OUTPUT, {})
    relay(settings)
    broker, at = topics.client(settings), {"archive": ends(settings)}
    until(lambda: groups.publish_groups(settings, broker, at), 30, "the coordinator of groups")  # of a new broker
    source_database.prepare(settings, [CUSTOMERS])
    with psycopg.connect(**settings.source(), autocommit=True) as source:
        slot = source_table.publication(settings.names, CUSTOMERS)
        source.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    bucket.s3_client(settings).put_object(Bucket=settings.s3_bucket, Key="object", Body=b"")


def relay(settings: Settings) -> None:
    """One transaction of a relay, whose transactional id each environment has."""
    config = {**settings.kafka(KafkaUser.RELAY), "transactional.id": f"{access.RELAY_TRANSACTIONS}cart"}
    producer = open_producer(config | {"log_level": 0})
    producer.init_transactions(deadline(30))
    producer.begin_transaction()
    producer.produce(OUTPUT, b"{}", b"k")
    producer.commit_transaction(deadline(30))


def ends(settings: Settings) -> Positions:
    return topics.committed_ends(topics.client(settings), [TOPIC])


def state(settings: Settings) -> State:
    reached = ends(settings)
    start = Positions({TOPIC: dict.fromkeys(reached.offsets[TOPIC], 0)}, reached.ids)
    ranges = [Range(t, p, 0, reached.at(t, p)) for t, p in reached.partitions() if reached.at(t, p)]
    batches = range_reader.read(settings.kafka(KafkaUser.READER), ranges)
    lag = unread.lags(settings, {"shown": start}, reached)["shown"]
    client = bucket.s3_client(settings)
    return State(
        namespace.holdings(settings).as_dict(),
        reached,
        [value for batch in batches for value in batch["value"].to_pylist()],
        sum(each.events for each in lag.values()),
        rows(settings, ANALYST) + rows(settings, API_ROLE),
        [each["Key"] for each in bucket.list_objects(client, settings.s3_bucket, "")],
    )


def rows(settings: Settings, role: str) -> list[Any]:
    """The view, as a role that reads it."""
    passwords = {ANALYST: settings.analyst_password, API_ROLE: settings.api_password}
    signed = {"user": settings.names.in_postgresql(role), "password": passwords[role].get_secret_value()}
    with psycopg.connect(**settings.database() | signed) as session:
        return session.execute("SELECT name FROM views.shown").fetchall()


@pytest.fixture(scope="module")
def base(platform: Settings) -> Settings:
    return platform


@pytest.fixture(scope="module")
def both(base: Settings) -> Iterator[tuple[Settings, Settings]]:
    made = set_up(base, "red", capture=True), set_up(base, "red2", capture=True)
    for each in made:
        use(each)
    yield made
    for each in made:
        namespace.destroy(each)
        drop_databases(each)


def test_each_environment_has_all_kinds_of_names(both: tuple[Settings, Settings]) -> None:
    for each in both:
        found = state(each)
        assert len(found.records) == found.lag == len(each.namespace)
        assert found.rows == [(each.database_name,)] * 2
        left = found.holdings.pop("publications_left")
        assert left == []
        assert all(found.holdings.values()), found.holdings
        names = [name for kind, listed in found.holdings.items() if kind != "rules" for name in listed]
        assert all(name.startswith((f"{each.namespace}.", f"{each.namespace}_")) for name in names)
        assert len(found.holdings["principals"]) == len(LIMITED)
        assert found.holdings["roles"] == [f"{each.namespace}_{role}" for role in ROLES]


def test_no_role_reads_the_database_of_another_environment(both: tuple[Settings, Settings]) -> None:
    red, red2 = both
    for role in (ANALYST, API_ROLE):
        with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
            rows(red.model_copy(update={"database_name": red2.database_name}), role)


def test_a_database_belongs_to_one_environment(both: tuple[Settings, Settings], base: Settings) -> None:
    red, red2 = both
    for wrong in (red2, base):
        taken = wrong.model_copy(update={"database_name": red.database_name})
        with pytest.raises(NotSetUp, match=r"with the namespace red, .*TRUELOG_DATABASE_NAME"):
            postgresql.prepare(taken)
    renamed = base.model_copy(update={"namespace": "blue"})
    with pytest.raises(NotSetUp, match="no namespace"):
        postgresql.prepare(renamed)


def test_a_new_environment_takes_over_no_topics(both: tuple[Settings, Settings]) -> None:
    absent = both[0].model_copy(update={"database_name": "absent", "capture": False})
    with pytest.raises(NotSetUp, match=r"Kafka has red\.\w+.* but the database absent does not exist"):
        foreign_names.require_none(absent)


def test_an_environment_in_use_is_not_destroyed(both: tuple[Settings, Settings]) -> None:
    red, _ = both
    before = namespace.holdings(red)
    taken = lease.take_lease(red, application.ARCHIVE)
    with pytest.raises(Fenced, match="archive is already running"):
        namespace.destroy(red)
    taken.release()
    with psycopg.connect(**red.api_database()), pytest.raises(ServiceDown, match="red_api still has sessions"):
        namespace.destroy(red)
    assert namespace.holdings(red) == before


def test_an_environment_without_a_namespace_is_not_destroyed(base: Settings) -> None:
    for ask in (namespace.holdings, namespace.destroy):
        with pytest.raises(NotSetUp, match="TRUELOG_NAMESPACE is empty"):
            ask(base)


def given(settings: Settings) -> dict[str, Any]:
    names = ("namespace", "database_name", "airflow_database", "source_database", "s3_bucket", "capture")
    return {f"TRUELOG_{name.upper()}": str(getattr(settings, name)) for name in names}


def test_the_command_needs_the_namespace_as_a_confirmation(both: tuple[Settings, Settings]) -> None:
    red, _ = both
    before = namespace.holdings(red)
    found = answer("namespace", "destroy", exit_code=2, **given(red))
    assert found == {"destroyed": False, **before.as_dict()}
    refused = truelog("namespace", "destroy", "--confirm", "red2", **given(red))
    assert refused.returncode == 2
    assert namespace.holdings(red) == before


def test_one_is_destroyed_and_the_others_do_not_notice(both: tuple[Settings, Settings], base: Settings) -> None:
    red, red2 = both
    before, plain = state(red2), everything(base)
    found = answer("namespace", "destroy", "--confirm", "red", **given(red))
    assert found["destroyed"]
    assert not any(namespace.holdings(red).as_dict().values())
    drop_databases(red)
    assert state(red2) == before
    assert everything(base) == {kind: names - of(red, names) for kind, names in plain.items()}
    relay(red2)
    with KafkaSender(red2, [TOPIC]) as sender:
        sender.send(OutgoingRecord(TOPIC, "k", b"after"))
    assert len(state(red2).records) == len(before.records) + 1
    namespace.destroy(red2.model_copy(update={"namespace": "red"}))  # again, when there is nothing
    assert state(red2).holdings == before.holdings


def everything(settings: Settings) -> dict[str, set[str]]:
    """The names of all environments on the servers."""
    broker = topics.client(settings, KafkaUser.ADMIN)
    with postgresql.admin(settings) as connection:
        roles = {role for (role,) in connection.execute("SELECT rolname FROM pg_roles").fetchall()}
        slots = {slot for (slot,) in connection.execute("SELECT slot_name FROM pg_replication_slots").fetchall()}
    known: Any = broker.describe_user_scram_credentials()
    return {
        "topics": topics.existing_topics(broker),
        "rules": {f"{rule.name} {rule.principal} {rule.operation}" for rule in access._existing(broker)},
        "groups": {group.group_id for group in broker.list_consumer_groups().result().valid or []},
        "principals": set(known.result()),
        "roles": roles,
        "slots": slots,
    }


def of(settings: Settings, names: set[str]) -> set[str]:
    return {name for name in names if name.startswith((f"{settings.namespace}.", f"{settings.namespace}_"))}
