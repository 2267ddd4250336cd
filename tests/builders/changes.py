"""Records as Debezium writes them to the topic of a captured table."""

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.builders.rows import before_now, insert
from truelog.schema.change import OPERATIONS, SNAPSHOT_END
from truelog.storage.database import Connection
from truelog.support import timestamps

_LETTERS = {name: letter for letter, name in OPERATIONS.items()}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = ("id", "name", "email", "city", "credit", "is_active", "since")


def change(
    operation: str,
    row: Mapping[str, Any] | None = None,
    *,
    lsn: int,
    commit: int | None = None,
    epoch: int = 1,
    snapshot: str = "false",
    before: Mapping[str, Any] | None = None,
    at: datetime = datetime(2026, 3, 1, tzinfo=UTC),
    dropped: tuple[str, ...] = (),
    source: str = "customers",
) -> bytes:
    """A change of a row. `commit` is the place of the commit before the change's own, and `lsn` that of the change.

    Debezium's name of the source begins with `source`.
    The table of customers has no longer the `dropped` columns. Each column that `row` lacks is NULL.
    """
    is_deletion = operation == "deleted"
    if row is not None:
        row = {name: value for name, value in (dict.fromkeys(_COLUMNS) | dict(row)).items() if name not in dropped}
    record = {
        "before": row if is_deletion else before,
        "after": None if is_deletion else row,
        "source": {
            "name": f"{source}-{epoch}",
            "lsn": lsn,
            "sequence": json.dumps([None if commit is None else str(commit), str(lsn)]),
            "ts_us": (at - _EPOCH) // (_EPOCH.resolution),
            "txId": lsn,
            "snapshot": snapshot,
        },
        "op": _LETTERS[operation],
    }
    return json.dumps(record, default=timestamps.to_text).encode()


def ended(
    *,
    epoch: int = 1,
    began: int = 0,
    table: str = "customers",
    of_epoch: int | None = None,
    source: str = "customers",
) -> bytes:
    """The end of a snapshot of a table, as the connector of the customers of an epoch captures it."""
    content = json.dumps({"epoch": epoch if of_epoch is None else of_epoch, "began": began})
    record = json.loads(change("heartbeat", lsn=began + 1, epoch=epoch, source=source))
    message = {"prefix": f"{SNAPSHOT_END}{table}", "content": b64encode(content.encode()).decode()}
    return json.dumps(record | {"message": message}).encode()


def a_captured_table(connection: Connection, name: str, *, ago: timedelta) -> None:
    """A captured table whose epoch began some time ago, and which has never been compared."""
    insert(connection, "capture", event_type=name, since=before_now(ago))


def a_restored_epoch(connection: Connection, name: str, epoch: int) -> None:
    """The epoch of a captured table is that of a backup."""
    connection.execute("UPDATE truelog.capture SET epoch = %s WHERE event_type = %s", (epoch, name))
