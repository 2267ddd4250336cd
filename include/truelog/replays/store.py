"""The replays that exist: their records, their relations, and when they are dropped."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from truelog.log.positions import Positions
from truelog.schema.names import TICKS
from truelog.storage.database import Connection, connect, read_value
from truelog.storage.locks import Locks
from truelog.support import timestamps
from truelog.support.errors import BadInput
from truelog.support.settings import Settings

SCHEMA = "replay"
_LONGEST_WAIT = "5s"  # for a lock
# The process that makes a replay holds the lock of its staged rows until it ends.
_ABANDONED = (
    f"CASE WHEN built_at IS NULL THEN pg_try_advisory_xact_lock({Locks.STAGED_ROWS.of('tables[1]')}) ELSE false END"
)
_REPLAYS = f"""
    SELECT replay, view, version, fingerprint, doer, begins, ends, tables, relations, began_at, built_at, drop_at,
        left_out, left_out_error, {_ABANDONED}
    FROM truelog.view_replay ORDER BY replay
"""  # noqa: S608
_REGISTER = """
    INSERT INTO truelog.view_replay (replay, view, version, fingerprint, doer, begins, ends, tables, relations, drop_at)
    SELECT %(name)s, %(view)s, %(version)s, %(fingerprint)s, %(doer)s, %(begins)s, %(ends)s, %(tables)s::text[],
        %(relations)s::text[], %(drop_at)s
    WHERE NOT EXISTS (
        SELECT FROM truelog.view_replay WHERE (tables || relations) && (%(tables)s::text[] || %(relations)s::text[])
    )
"""
_BUILT = """
    UPDATE truelog.view_replay SET built_at = clock_timestamp(),
        (left_out, left_out_error) = (SELECT count(*), min(error) FROM truelog.exclusion e WHERE e.view = replay)
    WHERE replay = %s
"""

log = logging.getLogger("truelog.replays")


@dataclass(frozen=True)
class Replay:
    """A copy of a view. `built_at` is None while it is made, and after its maker was killed: then it is `abandoned`.

    left_out: the records on which its code fails, so it does not count them, with the error of one of them.
    """

    name: str
    view: str
    version: int
    fingerprint: str
    doer: str
    begins: dict[str, dict[str, int]]
    ends: dict[str, dict[str, int]]
    tables: Sequence[str]
    relations: Sequence[str]
    began_at: datetime
    built_at: datetime | None
    drop_at: datetime
    left_out: int = 0
    left_out_error: str | None = None
    abandoned: bool = False

    @property
    def state(self) -> str:
        if self.built_at is not None:
            return "built"
        return "abandoned" if self.abandoned else "being built"

    @property
    def records(self) -> int:
        """How many records of the view's events lie in its range."""
        return sum(
            max(0, end - self.begins.get(topic, {}).get(partition, 0))
            for topic, ends in self.ends.items()
            if topic != TICKS
            for partition, end in ends.items()
        )

    @property
    def relation(self) -> str:
        """What people query."""
        return f"{SCHEMA}.{self.name}"

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        times = {
            name: at and timestamps.to_text(at)
            for name, at in (("began_at", self.began_at), ("built_at", self.built_at), ("drop_at", self.drop_at))
        }
        return {**vars(self), **times, "relation": self.relation, "state": self.state, "records": self.records}


def register(connection: Connection, replay: Replay) -> None:
    """Record a replay before anything of it exists, so that nothing of it can be forgotten.

    An abandoned replay of the same name is dropped. The caller holds the lock of the staged rows.

    Raises:
        BadInput: there is one of this name, or with a relation of the same name.
    """
    for each in replays(connection):
        if each.abandoned and each.name == replay.name:
            drop(connection, each)
    found = connection.execute(_REGISTER, {**vars(replay), "begins": Jsonb(replay.begins), "ends": Jsonb(replay.ends)})
    if not found.rowcount:
        raise BadInput(f"There is a replay {replay.name} already. Choose another name, or `truelog replays drop` it.")


def plain(positions: Positions) -> dict[str, dict[str, int]]:
    """Positions as the table keeps them."""
    return {topic: {str(p): at for p, at in ends.items()} for topic, ends in positions.plain().items()}


def replays(connection: Connection) -> list[Replay]:
    """All replays, by name."""
    return [Replay(*row) for row in connection.execute(_REPLAYS).fetchall()]


def replay_of(connection: Connection, name: str) -> Replay:
    """A replay by its name.

    Raises:
        BadInput: there is none.
    """
    found = [each for each in replays(connection) if each.name == name]
    if not found:
        raise BadInput(f"There is no replay {name}: see `truelog replays list`.")
    return found[0]


def drop(connection: Connection, replay: Replay) -> bool:
    """Drop a replay with all that belongs to it. If a query or its maker uses its tables, leave it, and return False.

    If it is gone by now, another one of its name stays.
    """
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{_LONGEST_WAIT}'")
            _drop(connection, replay)
    except psycopg.errors.LockNotAvailable:
        log.warning("the replay %s cannot be dropped, because it is still in use", replay.name)
        return False
    return True


def _drop(connection: Connection, replay: Replay) -> None:
    query = "SELECT built_at IS NOT NULL FROM truelog.view_replay WHERE (replay, began_at) = (%s, %s) FOR UPDATE"
    is_built = read_value(connection, query, (replay.name, replay.began_at))
    if is_built is None:
        return
    for name in replay.relations:
        relation = sql.Identifier(SCHEMA, name)
        connection.execute(sql.SQL("DROP VIEW IF EXISTS {} CASCADE").format(relation))
    _drop_tables(connection, SCHEMA, replay.tables)
    if not is_built:
        forget_work(connection, replay.name)
    connection.execute("DELETE FROM truelog.view_replay WHERE replay = %s", (replay.name,))


def forget_work(connection: Connection, name: str) -> None:
    """Drop what only the making of a replay needs. It has the name of the replay, which a later view may have too."""
    query = "SELECT tables FROM truelog.view_replay WHERE replay = %s"
    _drop_tables(connection, "stage", read_value(connection, query, (name,)))
    connection.execute("DELETE FROM truelog.exclusion WHERE view = %s", (name,))


def record_built(connection: Connection, name: str) -> None:
    """Record that the replay is built, in the transaction that creates its tables. It cannot be dropped meanwhile.

    Raises:
        BadInput: it was dropped before.
    """
    found = connection.execute(_BUILT, (name,))
    if not found.rowcount:
        raise BadInput(f"The replay {name} was dropped while it was built.")


def drop_if_any(connection: Connection, name: str) -> None:
    """Drop a replay, if it still exists."""
    for each in replays(connection):
        if each.name == name:
            drop(connection, each)


def drop_readers(connection: Connection, topics: Collection[str]) -> list[str]:
    """Drop the replays that have read one of these topics, and return the names of the replays in use.

    A replay that is being built and is dropped ends with an error.
    """
    found = [each for each in replays(connection) if each.ends.keys() & set(topics)]
    return [each.name for each in found if not drop(connection, each)]


def drop_over(settings: Settings) -> list[str]:
    """Drop abandoned replays and the replays whose time is over, and return their names. One in use stays for later."""
    dropped = list[str]()
    with connect(settings, autocommit=True) as connection:
        past = connection.execute("SELECT replay FROM truelog.view_replay WHERE drop_at < now()").fetchall()
        over = {name for (name,) in past}
        for each in replays(connection):
            if (each.abandoned or each.name in over) and drop(connection, each):
                why = "it is abandoned" if each.abandoned else "its time is over"
                log.info("the replay %s is dropped, because %s", each.name, why)
                dropped.append(each.name)
    return dropped


def _drop_tables(connection: Connection, schema: str, tables: Sequence[str]) -> None:
    for each in tables:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema, each)))
