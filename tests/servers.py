"""The environment of each test file, and the servers that the files of a worker share.

A start of PostgreSQL, Kafka and S3 takes seconds, so a worker starts each server once. A file's environment is a home
with settings, a database, a bucket, and topics without records. `docs/decisions/063-environments-of-tests.md` says why
topics are deleted and created again between files.
"""

import itertools
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from unittest import mock

import psycopg
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from psycopg import sql

import runtime
from runtime import airflow, kafka, keeper, postgresql, s3, services
from tests.deadline import deadline, until
from truelog.control import event_files
from truelog.log import topics
from truelog.services import registry
from truelog.storage import bucket
from truelog.support.errors import ServiceDown
from truelog.support.files import write_private
from truelog.support.settings import ENVIRONMENT_FILE, KafkaUser, Settings, default_home

STORES = ("postgresql", "kafka", "s3")
AIRFLOW = "airflow"  # Airflow's own database, which takes ten seconds to set up
_ANY_RULE = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)
# A file starts these services itself, so it needs ports for them.
_OWN_PORTS = tuple(f"TRUELOG_{name.upper()}_PORT=" for name in ("airflow", "connect", *registry.HTTP))


class Environment(ABC):
    """What a test file works with: a home, and what the file asked for of a database, topics and a bucket."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._provided: set[str] = set()

    def provide(self, *stores: str) -> Settings:
        """Make the file's database, topics, bucket or Airflow database, unless they exist.

        With the first three, the event types are registered.
        """
        missing = [store for store in stores if store not in self._provided]
        if missing:
            self._make(missing)
        self._provided.update(missing)
        return self.settings

    @property
    def objects(self) -> Path:
        """The folder with the bucket's objects."""
        return self.server_home / "s3" / "objects" / self.settings.s3_bucket

    @property
    def server_home(self) -> Path:
        """The home of the servers."""
        return self.settings.home

    def end(self) -> None:
        """Stop what is running in the home, and remove the home."""
        runtime.down(self.settings)
        shutil.rmtree(self.settings.home, onerror=_unless_gone)

    @abstractmethod
    def _make(self, stores: Sequence[str]) -> None: ...


class OwnServers(Environment):
    """Servers that no other file uses, in this or in a new home. They end with the test run, even if it is killed."""

    def __init__(self, home: Path | None = None) -> None:
        super().__init__(runtime.set_up(home or _new_home(), random_ports=True))

    def _make(self, stores: Sequence[str]) -> None:
        runtime.up(self.settings, set(stores) - {AIRFLOW}, tethered=True)  # Airflow's start sets up its own database


class SharedServers(OwnServers):
    """The servers of a worker. Each starts when a file first needs it."""

    def __init__(self) -> None:
        super().__init__()
        self._names = (f"file{number}" for number in itertools.count())

    def environment(self, **more: object) -> "OnSharedServers":
        """A new home, whose settings name these servers and a database and a bucket that do not exist yet."""
        name, home = next(self._names), _new_home()
        lines = (self.settings.home / ENVIRONMENT_FILE).read_text().splitlines(keepends=True)
        lines = [line for line in lines if not line.startswith(_OWN_PORTS)]
        chosen = {"database_name": name, "airflow_database": f"{name}_airflow", "s3_bucket": name} | more
        lines += [f"TRUELOG_{setting.upper()}={value}\n" for setting, value in chosen.items()]
        write_private(home / ENVIRONMENT_FILE, "".join(lines))
        return OnSharedServers(runtime.set_up(home, random_ports=True), self)

    def _make(self, stores: Sequence[str]) -> None:
        for each in stores:  # all together would register event types of topics that no file has
            super()._make([each])
        if "postgresql" in stores:
            self._skip_fsync()
        if AIRFLOW in stores:
            airflow.configure(self.settings)

    def _skip_fsync(self) -> None:
        """Let PostgreSQL not wait for the disk. Only a crash of the machine could lose what it has written."""
        with _as_superuser(self.settings) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")


class OnSharedServers(Environment):
    """A database, a bucket and the topics of shared servers. Only one environment at a time can have the topics."""

    def __init__(self, settings: Settings, servers: SharedServers) -> None:
        super().__init__(settings)
        self._servers = servers

    def end(self) -> None:
        super().end()
        if "postgresql" in self._provided:
            drop_database(self.settings, self.settings.database_name)
            drop_database(self.settings, self.settings.airflow_database)

    def renew(self) -> None:
        """Empty the bucket, replace the database, and leave the topics to the next `provide`."""
        drop_database(self.settings, self.settings.database_name)
        self._make_database()
        client, name = bucket.s3_client(self.settings), self.settings.s3_bucket
        for each in bucket.list_objects(client, name, ""):
            client.delete_object(Bucket=name, Key=each["Key"])
        self._provided.discard("kafka")

    @property
    def server_home(self) -> Path:
        return self._servers.settings.home

    def _make(self, stores: Sequence[str]) -> None:
        self._servers.provide(*stores)
        make = {
            "postgresql": self._make_database,
            AIRFLOW: self._make_airflow_database,
            "kafka": self._make_topics,
            "s3": self._make_bucket,
        }
        for store in stores:
            make[store]()
        if self._provided.union(stores) >= set(STORES):
            assert event_files.register_files(self.settings) == {}

    def _make_database(self) -> None:
        """Copy the migrated database. A copy does not have the rights of the original, so they are granted again.

        The set-up would also make an empty database for Airflow, at the same price. Few files need one.
        """
        others = self._servers.settings
        copy_database(self.settings, others.database_name, self.settings.database_name)
        with _as_superuser(self.settings) as connection:
            connection.execute(postgresql.mark(self.settings))
        postgresql.prepare(self.settings.model_copy(update={"airflow_database": others.airflow_database}))

    def _make_airflow_database(self) -> None:
        copy_database(self.settings, self._servers.settings.airflow_database, self.settings.airflow_database, "airflow")
        postgresql.prepare(self.settings)
        airflow.record_set_up(self.settings)

    def _make_topics(self) -> None:
        """Leave only what a new platform has: other topics, consumer groups and rules for principals disappear.

        An environment with a namespace is beside others, so nothing disappears.
        """
        if not self.settings.namespace:
            broker = topics.client(self.settings, KafkaUser.ADMIN)
            _delete_topics(broker)
            groups = [group.group_id for group in broker.list_consumer_groups().result().valid]
            for deleted in broker.delete_consumer_groups(groups).values() if groups else ():
                deleted.result()
            _delete_rules(broker)
        kafka.prepare(self.settings)

    def _make_bucket(self) -> None:
        s3.prepare(self.settings)


@contextmanager
def isolated() -> Iterator[None]:
    """The environment of tests in this block. It names no home, so that no test reaches a platform in use.

    A service that this process starts has as much longer to become ready as a test has for its waits.
    """
    ready, started = deadline(services.READY_SECONDS), deadline(keeper.START_SECONDS)
    with (
        mock.patch.dict(os.environ),
        mock.patch.object(services, "READY_SECONDS", ready),
        mock.patch.object(keeper, "START_SECONDS", started),
    ):
        jars = os.environ.get("TRUELOG_JARS", str(default_home() / "jars"))
        for name in [name for name in os.environ if name.startswith("TRUELOG_")]:
            del os.environ[name]
        os.environ["TRUELOG_JARS"] = jars
        # In a test, Spark runs for seconds only, so the second JIT compiler would take more time than it saves.
        # With one compiler, the code cache has 48 MB by default, and Java stops to compile when it is full.
        os.environ["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
        yield


def copy_database(settings: Settings, source: str, name: str, owner: str = "truelog") -> None:
    """Create a database with the contents of another database, which has no sessions."""
    with _as_superuser(settings) as connection:
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER {}")
        connection.execute(statement.format(*map(sql.Identifier, (name, source, owner))))


def drop_database(settings: Settings, name: str) -> None:
    with _as_superuser(settings) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _new_home() -> Path:
    """An empty home, not under pytest's folder, which the unprivileged user that runs PostgreSQL cannot enter."""
    return Path(tempfile.mkdtemp(prefix="truelog-"))


def _unless_gone(_: object, path: str, failure: tuple[type[BaseException], BaseException, TracebackType]) -> None:
    """Ignore a file that a process of the worker removed first, such as Java a socket of Spark."""
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]


def _as_superuser(settings: Settings) -> psycopg.Connection:
    own = {"user": "postgres", "dbname": "postgres", "password": settings.postgres_password.get_secret_value()}
    return psycopg.connect(**settings.database() | own, autocommit=True)


def _delete_topics(broker: AdminClient) -> None:
    names = [name for name in topics.existing_topics(broker) if not name.startswith("__")]  # not Kafka's own
    for deleted in broker.delete_topics(names).values() if names else ():
        deleted.result()

    def require_deleted() -> None:
        if left := topics.existing_topics(broker).intersection(names):
            raise ServiceDown(f"{', '.join(sorted(left))} still exist")

    until(require_deleted, 30, "the end of the topics")


def _delete_rules(broker: AdminClient) -> None:
    for deleted in broker.delete_acls([_ANY_RULE]).values():
        deleted.result()

    def require_deleted() -> None:
        if broker.describe_acls(_ANY_RULE).result():
            raise ServiceDown("some still exist")

    until(require_deleted, 30, "the end of the rules for Kafka's principals")
