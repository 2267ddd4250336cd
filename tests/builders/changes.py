"""Records as Debezium writes them to the topic of a captured table."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from truelog.schema.change import OPERATIONS
from truelog.support import timestamps

_LETTERS = {name: letter for letter, name in OPERATIONS.items()}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
) -> bytes:
    """A change of a row. `commit` is the place of the commit before the change's own, and `lsn` that of the change."""
    is_deletion = operation == "deleted"
    record = {
        "before": row if is_deletion else before,
        "after": None if is_deletion else row,
        "source": {
            "name": f"customers-{epoch}",
            "lsn": lsn,
            "sequence": json.dumps([None if commit is None else str(commit), str(lsn)]),
            "ts_us": (at - _EPOCH) // (_EPOCH.resolution),
            "txId": lsn,
            "snapshot": snapshot,
        },
        "op": _LETTERS[operation],
    }
    return json.dumps(record, default=timestamps.to_text).encode()
