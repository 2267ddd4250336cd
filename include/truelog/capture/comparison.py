"""Compares a captured table's view with the table itself, at one place in the database's log.

1. Copy the table's hashes in one snapshot of the captured database, and note the end of its log after the snapshot.
2. Wait until the topic and then the view contain everything before this end.
3. Compare the hashes by bucket, and rows only in unequal buckets.
4. A row that differs may have changed after the snapshot. It is equal if it is equal in one of three rounds, so a busy
   table can be compared. It is different if it differs in each round in the same way. If a row changes during each
   round, the result is UNKNOWN.

No log can tell that a row was deleted while its replication slot was lost. This comparison can.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from truelog.capture.source_table import COLUMNS, REAL, column_problems, column_types, schema_and_table
from truelog.erasure import hold
from truelog.log import topics
from truelog.log.kafka_reader import messages
from truelog.schema.change import Change, decode_changes
from truelog.schema.event import EventType
from truelog.schema.field import Field
from truelog.storage.database import Connection, connect
from truelog.support.errors import CaptureRefused, ServiceDown
from truelog.support.settings import Settings
from truelog.support.wait import until

EQUAL, DIFFERENT, UNKNOWN = "EQUAL", "DIFFERENT", "UNKNOWN"
_ROUNDS = 3
_SHOWN = 10  # keys
_TAIL = 50  # records

# The same on both sides, so that the text of a row is the same.
_SESSION = "-c timezone=UTC -c datestyle=ISO -c extra_float_digits=1 -c default_transaction_read_only=on"
_HASHES = """
SELECT bucket, count(*), sum(hash) FROM (
    SELECT ('x' || substr(md5(row_key::text), 1, 2))::bit(8)::int AS bucket,
        ('x' || substr(md5(_row::text), 1, 15))::bit(60)::bigint::numeric AS hash FROM ({rows}) AS _row
) AS hashed GROUP BY bucket
"""
_ROWS = """
SELECT row_key::text, _row::text FROM ({rows}) AS _row
WHERE ('x' || substr(md5(row_key::text), 1, 2))::bit(8)::int = ANY(%s)
"""

Differences = dict[str, tuple[str | None, str | None]]  # key → the row in the table, and the row in the view


@dataclass(frozen=True)
class SourceComparison:
    """The result of a comparison. `lsn` is the end of the database's log after the last snapshot."""

    view: str
    verdict: str
    rows: int
    missing: int = 0
    extra: int = 0
    different: int = 0
    lsn: str = ""
    keys: tuple[str, ...] = ()
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Round:
    lsn: str
    rows: int
    differences: Differences


def compare(settings: Settings, view: str, event_type: EventType) -> SourceComparison:
    """Compare the relation `current` of a view with the table of its event type."""
    try:
        found = [_round(settings, view, event_type)]
        while _unequal(found) and len(found) < _ROUNDS:
            found.append(_round(settings, view, event_type))
    except (ServiceDown, CaptureRefused, psycopg.OperationalError) as error:
        return SourceComparison(view, UNKNOWN, 0, reason=str(error))
    except psycopg.DatabaseError as error:
        if reason := hold.refusal(error):
            return SourceComparison(view, UNKNOWN, 0, reason=reason)
        raise
    last, unequal = found[-1], _unequal(found)
    if not unequal:
        return SourceComparison(view, EQUAL, last.rows, lsn=last.lsn)
    stable = {key: last.differences[key] for key in unequal if len({each.differences[key] for each in found}) == 1}
    if not stable:
        keys = tuple(sorted(unequal)[:_SHOWN])
        reason = f"{len(unequal):,} rows changed during each of {_ROUNDS} comparisons"
        return SourceComparison(view, UNKNOWN, last.rows, lsn=last.lsn, keys=keys, reason=reason)
    return SourceComparison(
        view,
        DIFFERENT,
        last.rows,
        missing=sum(copy is None for _, copy in stable.values()),
        extra=sum(row is None for row, _ in stable.values()),
        different=sum(row is not None and copy is not None for row, copy in stable.values()),
        lsn=last.lsn,
        keys=tuple(sorted(stable)[:_SHOWN]),
        reason=f"a new snapshot makes the view equal: truelog capture snapshot {event_type.name}",
    )


def _unequal(rounds: Sequence[_Round]) -> set[str]:
    """The keys of the rows that differ in every round."""
    return set.intersection(*(set(each.differences) for each in rounds))


def _round(settings: Settings, view: str, event_type: EventType) -> _Round:
    with _session(settings.source()) as source, _session(settings.database()) as ours:
        types = _types(source, event_type)
        theirs_rows = _table_rows(event_type, types)
        hashes = _hashes(source, theirs_rows)  # 1
        lsn = _require_read(settings, view, event_type)  # 2
        our_rows = _view_rows(view, event_type, types)
        ours_hashes = _hashes(ours, our_rows)  # 3
        buckets = [each for each in hashes.keys() | ours_hashes.keys() if hashes.get(each) != ours_hashes.get(each)]
        table, copy = _rows(source, theirs_rows, buckets), _rows(ours, our_rows, buckets)
    keys = [key for key in table.keys() | copy.keys() if table.get(key) != copy.get(key)]
    differences = {key: (table.get(key), copy.get(key)) for key in keys}
    return _Round(lsn, sum(count for count, _ in ours_hashes.values()), differences)


def _session(arguments: dict[str, Any]) -> Connection:
    """A session whose queries all see the snapshot of the first."""
    made: Connection = psycopg.connect(**arguments | {"options": _SESSION}, connect_timeout=10)
    made.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    return made


def _require_read(settings: Settings, view: str, event_type: EventType) -> str:
    """Wait until the topic and the view contain what was committed until now, and return where in the log that is."""
    with psycopg.connect(**settings.source(), autocommit=True, connect_timeout=10) as session:
        end, end_number = _heartbeat(session)

        def captured() -> None:
            _heartbeat(session)  # a message after the end, which Connect captures after everything before the end
            if _captured_until(settings, event_type) < end_number:
                raise ServiceDown(f"Kafka Connect has not captured everything below {end}")

        until(captured, settings.archive_wait_seconds, f"the capture of {event_type.name}")
    ends = topics.end_offsets(settings, [event_type.name])

    def counted() -> None:
        with connect(settings, autocommit=True) as connection:
            at = _merged(connection, view)
        if any(at.get(key, 0) < ends.at(*key) for key in ends.partitions()):
            raise ServiceDown(f"the view has not read everything below {end}")

    until(counted, settings.archive_wait_seconds, f"the view {view}")
    return end


def _merged(connection: Connection, view: str) -> dict[tuple[str, int], int]:
    """The positions of the version that readers see. Its rows are compared."""
    rows = connection.execute(
        "SELECT topic, partition, next_offset FROM truelog.position JOIN truelog.deployed USING (view, version) "
        "WHERE view = %s",
        (view,),
    )
    return {(topic, partition): offset for topic, partition, offset in rows}


def _heartbeat(session: psycopg.Connection[Any]) -> tuple[str, int]:
    """Write a message to the database's log, and return where it is, as PostgreSQL writes it and as a number."""
    row = session.execute(
        "SELECT at, at - '0/0'::pg_lsn FROM pg_logical_emit_message(true, 'truelog', '') AS at"
    ).fetchone()
    assert row is not None  # noqa: S101  the function returns a row
    return str(row[0]), int(row[1])


def _captured_until(settings: Settings, event_type: EventType) -> int:
    """The greatest place among the topic's last changes; 0 while a snapshot is being read.

    The topic has one partition, and after a snapshot it is in the order of commits.
    """
    end = topics.end_offsets(settings, [event_type.name]).at(event_type.name, 0)
    values = [each.value() for each in messages(settings, event_type.name, 0, max(0, end - _TAIL), end)]
    now = pa.array([datetime.now(UTC)] * len(values), pa.timestamp("us", "UTC"))
    changes = decode_changes(event_type, pa.array(values, pa.binary()), now, event_type.future_limit).to_pylist()
    streamed = [each for each in changes if each["invalid"] is None and each["source_operation"] != "read"]
    return max((each["source_lsn"] for each in streamed), default=0)


def _types(source: Connection, event_type: EventType) -> dict[str, str]:
    """The types of the table's columns."""
    if problem := next(column_problems(source, event_type), None):
        raise CaptureRefused(problem)
    types = column_types(source, event_type)
    source.rollback()  # the snapshot begins with the rows
    return types


def _table_rows(event_type: EventType, types: Mapping[str, str]) -> sql.Composed:
    """The table's rows, with each value in the form in which the view has it."""
    forms = {each.name: COLUMNS[each.python_type][types[each.name]] for each in _columns(event_type)}
    return _keyed(event_type, forms, sql.Identifier(*schema_and_table(event_type)))


def _view_rows(view: str, event_type: EventType, types: Mapping[str, str]) -> sql.Composed:
    forms = {each.name: REAL if types[each.name] == "float4" else "{}" for each in _columns(event_type)}
    return _keyed(event_type, forms, sql.Identifier("views", f"{view}_current"))


def _columns(event_type: EventType) -> list[Field]:
    return [each for each in event_type.fields if each.name not in Change.model_fields]


def _keyed(event_type: EventType, forms: Mapping[str, str], table: sql.Identifier) -> sql.Composed:
    """The rows with their keys, and each column in a form, which is SQL around the column's name."""
    columns = [
        sql.SQL("{} AS {}").format(sql.SQL(form).format(sql.Identifier(name)), sql.Identifier(name))
        for name, form in forms.items()
    ]
    key = sql.Identifier(str(event_type.topic.key))
    return sql.SQL("SELECT {} AS row_key, {} FROM {}").format(key, sql.SQL(", ").join(columns), table)


def _hashes(connection: Connection, rows: sql.Composed) -> dict[int, tuple[int, int]]:
    found = connection.execute(sql.SQL(_HASHES).format(rows=rows)).fetchall()
    return {bucket: (count, total) for bucket, count, total in found}


def _rows(connection: Connection, rows: sql.Composed, buckets: list[int]) -> dict[str, str]:
    return dict(connection.execute(sql.SQL(_ROWS).format(rows=rows), (buckets,)).fetchall()) if buckets else {}
