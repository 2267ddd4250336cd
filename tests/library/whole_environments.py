"""Environments with databases, topics, principals and buckets of their own on one set of servers."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from runtime import foreign_names, kafka, namespace, postgresql, s3
from tests.servers import drop_database
from truelog.control import event_files
from truelog.support.settings import Settings


def set_up(base: Settings, name: str, *, without: Collection[str] = (), **more: object) -> Settings:
    """An environment of its own, as `truelog up` prepares it in servers that others run.

    without: the event types that cannot be used.
    """
    database = f"{base.database_name}_{name}"
    own: dict[str, object] = {"namespace": name, "database_name": database, "airflow_database": f"{database}_airflow"}
    own |= {"s3_bucket": f"{base.s3_bucket}-{name}", "source_database": f"{database}_shop"}
    made = base.model_copy(update=own | more)
    foreign_names.require_none(made.model_copy(update={"capture": False}))
    for store in (postgresql, kafka, s3):
        store.prepare(made)
    assert event_files.register_files(made).keys() == {*without}
    return made


def reading(base: Settings, name: str, other: Settings, *, without: Collection[str] = (), **more: object) -> Settings:
    """An environment that reads the events of the other one."""
    read = {"reads_namespace": other.namespace, "reads_bucket": other.s3_bucket}
    return set_up(base, name, without=without, **read, **more)


@contextmanager
def destroyed_afterwards(made: Settings) -> Iterator[Settings]:
    """The environment, until the block ends."""
    try:
        yield made
    finally:
        namespace.destroy(made)
        drop_databases(made)


def drop_databases(settings: Settings) -> None:
    for database in (settings.database_name, settings.airflow_database, settings.source_database):
        drop_database(settings, database)
