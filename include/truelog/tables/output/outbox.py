"""Output: the changed and removed rows of a view that declares `publish`, in the order of its transactions.

They go to the outbox in the transaction that changes them, whatever changes them: a merge, a repair, or a rebuild under
another reading. The transaction holds the lock of the view's row, so the numbers that it draws follow those of the
transaction before, and no number is missing. Each key has at most one row in a transaction. Removed keys come first, so
that a key that replaces another one never vanishes with it.

An output begins with the whole table. `truelog.relay` publishes the outbox to Kafka.
"""

import json
from collections.abc import Sequence

from psycopg import sql

from truelog.log.positions import Range
from truelog.storage.database import Connection, read_value
from truelog.storage.locks import Locks
from truelog.tables import kinds
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import changes

_RECORD = """
WITH changed AS MATERIALIZED ({changed}),
numbered AS (SELECT row_number() OVER (ORDER BY value IS NOT NULL, key COLLATE "C") AS place, key, value FROM changed),
drawn AS (
    UPDATE truelog.output AS o SET number = o.number + n.rows FROM (SELECT count(*) AS rows FROM numbered) AS n
    WHERE (view, version) = (%(view)s, %(version)s) AND n.rows > 0
    RETURNING o.number AS last, o.number - n.rows AS before
), step AS (
    INSERT INTO truelog.output_step (view, version, last, records, positions)
    SELECT %(view)s, %(version)s, last, %(records)s::text, (
        SELECT coalesce(jsonb_object_agg(topic, offsets), '{{}}') FROM (
            SELECT topic, jsonb_object_agg(partition, next_offset) AS offsets FROM truelog.position
            WHERE (view, version) = (%(view)s, %(version)s) GROUP BY topic
        ) AS p
    ) FROM drawn
)
INSERT INTO truelog.outbox (view, version, number, step, key, value)
SELECT %(view)s, %(version)s, before + place, last, key, value FROM numbered CROSS JOIN drawn
"""
_BEGIN = """
    INSERT INTO truelog.output AS o (view, version, beginning, first) VALUES (%s, %s, gen_random_uuid(), 1)
    ON CONFLICT (view, version) DO UPDATE SET beginning = excluded.beginning, first = o.number + 1, trouble = ''
"""
_END = "UPDATE truelog.output SET beginning = NULL WHERE (view, version) = (%s, %s)"


def settle(connection: Connection, compiled: CompiledView) -> None:
    """Begin or end the output of a view, as it declares. Without a change, nothing happens.

    Call this function in a transaction. It takes the lock of the view's row before it changes anything.
    """
    if changes.is_followed(connection, compiled.own) == compiled.view.publish:
        return
    connection.execute("SELECT FROM truelog.view WHERE (view, version) = (%s, %s) FOR UPDATE", _version(compiled))
    if compiled.view.publish:
        changes.follow(connection, compiled.own)
        begin(connection, compiled)
    else:
        changes.unfollow(connection, compiled.own)
        end(connection, *_version(compiled))


def begin(connection: Connection, compiled: CompiledView) -> None:
    """Begin a view's output with its whole table, in a transaction that holds the lock of the view's row.

    It waits while an erasure deletes the topics that no view writes.
    """
    connection.execute(f"SELECT pg_advisory_xact_lock_shared({Locks.OUTPUTS})")
    _forget(connection, *_version(compiled))  # first, as the limit of the outbox does: it marks the output afterwards
    connection.execute(_BEGIN, _version(compiled))
    changes.forget(connection, compiled.own)
    _record(connection, compiled, changes.all_rows(compiled.own))


def pass_by(connection: Connection, compiled: CompiledView, published: int) -> int | None:
    """Let all earlier steps leave the outbox as soon as the relay is past a new step, which changes nothing.

    The new step has one row of the table as it is. The output of an empty table begins again instead, but not before
    everything is published: if it is published only to this number, return None. Otherwise, return the last number.
    """
    with connection.transaction():
        connection.execute("SELECT FROM truelog.view WHERE (view, version) = (%s, %s) FOR UPDATE", _version(compiled))
        row = sql.SQL("SELECT key, value FROM ({}) AS shown LIMIT 1").format(changes.all_rows(compiled.own))
        if connection.execute(row).fetchone() is not None:
            _record(connection, compiled, row)
        elif published < _last_number(connection, compiled):
            return None
        else:
            begin(connection, compiled)
        return _last_number(connection, compiled)


def repeat(connection: Connection, compiled: CompiledView, keys: Sequence[str]) -> int:
    """Put the present rows with these keys into the outbox again, and a removal of each key without a row.

    Readers of the output have these rows already, unless they have lost some. Return the number of the last row of the
    outbox. Call this function in a transaction that holds the lock of the view's row.
    """
    present = sql.SQL(
        "SELECT key, shown.value FROM unnest({}::text[]) AS asked (key) LEFT JOIN ({}) AS shown USING (key)"
    ).format(sql.Literal(list(keys)), changes.all_rows(compiled.own))
    _record(connection, compiled, present)
    return _last_number(connection, compiled)


def end(connection: Connection, view: str, version: int) -> None:
    """End an output, if there is one. Its topic stays as it is."""
    _forget(connection, view, version)
    connection.execute(_END, (view, version))


def record_changes(connection: Connection, compiled: CompiledView, records: Sequence[Range] = ()) -> None:
    """Put the rows that this transaction has changed into the outbox, if the view publishes them.

    The transaction holds the lock of the view's row, and the view's positions are already those after the change.
    No other records than `records` have changed the rows. They are empty if that is not known, or if they are many.

    An output may begin after the first batches, because `settle` does not wait for long queries. It begins with the
    whole table, so it has their rows.
    """
    if compiled.view.publish and changes.is_followed(connection, compiled.own):
        _record(connection, compiled, kinds.changes(compiled), records)
        changes.forget(connection, compiled.own)


def _record(
    connection: Connection, compiled: CompiledView, changed: sql.Composed, records: Sequence[Range] = ()
) -> None:
    """Put changed rows into the outbox. Each batch has the same statement, so that it stays prepared in the session."""
    view, version = _version(compiled)
    places = json.dumps([[each.topic, each.partition, each.start, each.end] for each in records]) if records else None
    escaped = sql.SQL(changed.as_string(connection).replace("%", "%%"))  # a measure's SQL may have a percent sign
    parameters = {"view": view, "version": version, "records": places}
    connection.execute(sql.SQL(_RECORD).format(changed=escaped), parameters)


def _forget(connection: Connection, view: str, version: int) -> None:
    """Delete the rows of the outbox, in the order of `ViewFeed.trim`. Another order could end in a deadlock."""
    connection.execute("DELETE FROM truelog.output_step WHERE (view, version) = (%s, %s)", (view, version))
    connection.execute("DELETE FROM truelog.outbox WHERE (view, version) = (%s, %s)", (view, version))


def _last_number(connection: Connection, compiled: CompiledView) -> int:
    last = "SELECT number FROM truelog.output WHERE (view, version) = (%s, %s)"
    return int(read_value(connection, last, _version(compiled)))


def _version(compiled: CompiledView) -> tuple[str, int]:
    return compiled.name, compiled.view.version
