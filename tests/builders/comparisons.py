"""Comparisons of views, and what follows from them: certificates, repairs and validations."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from tests.builders.rows import NO_TIME, before_now, insert, insert_numbered
from truelog.batch.partial_selection import PartialRange
from truelog.storage import exact_json
from truelog.storage.database import Connection


def a_reconciliation(
    connection: Connection, view: str, verdict: str = "EQUAL", *, ago: timedelta = NO_TIME, **found: Any
) -> int:
    """A comparison of version 1 that ended some time ago. `found` has the other columns. Returns its number."""
    columns = {
        "version": 1,
        "positions": Jsonb({}),
        "from_raw": False,
        "row_count": 1,
        **dict.fromkeys(("missing", "extra", "different", "repaired"), 0),
        "reason": "",
        "sample": Jsonb([]),
        "finished_at": before_now(ago),
    }
    return insert_numbered(connection, "reconciliation", view=view, verdict=verdict, **columns | found)


def a_validation(
    connection: Connection,
    reconciliation: int,
    *,
    success: bool = True,
    failed: Sequence[str] = (),
    outcomes: Sequence[tuple[str, object, bool]] = (),
    ago: timedelta = NO_TIME,
) -> None:
    """The checks of the view's rows after a comparison, and each rule's outcome: text, observed value, success."""
    results = [
        {"expectation_config": {"description": rule}, "result": {"observed_value": observed}, "success": met}
        for rule, observed, met in outcomes
    ]
    insert(
        connection,
        "validation",
        reconciliation=reconciliation,
        success=success,
        failed=list(failed),
        result=Jsonb({"results": [{"results": results}]}),
        finished_at=before_now(ago),
    )


def a_certificate(connection: Connection, reconciliation: int, *, ago: timedelta | None = None) -> None:
    """The certificate of a comparison, made when the comparison ended or at another time. There is no object."""
    made = sql.SQL("finished_at") if ago is None else before_now(ago)
    query = sql.SQL(
        "INSERT INTO truelog.certificate "
        "(id, view, version, reconciliation, positions, fingerprint, row_count, digest, object, made_at) "
        """SELECT view || to_char({made}, '-YYYYMMDD"T"HH24MISS.US"Z-"') || lpad(id::text, 8, '0'), """
        "view, version, id, positions, '', row_count, '', '', {made} FROM truelog.reconciliation WHERE id = {number}"
    )
    connection.execute(query.format(made=made, number=reconciliation))


def a_repair(
    connection: Connection,
    view: str,
    key: Sequence[Any] = (),
    *,
    before: Any = None,
    after: Any = None,
    ago: timedelta = NO_TIME,
) -> None:
    """A row of version 1 that a repair changed. A missing row is None."""
    insert(
        connection,
        "repair",
        view=view,
        version=1,
        positions=Jsonb({}),
        key=Jsonb(list(key)),
        before=None if before is None else Jsonb(before, exact_json.write),
        after=None if after is None else Jsonb(after, exact_json.write),
        repaired_at=before_now(ago),
    )


def a_base(connection: Connection, view: str, version: int = 1) -> None:
    """The base of an incremental comparison. There is no snapshot."""
    insert(
        connection,
        "base",
        view=view,
        version=version,
        certificate="c",
        snapshot=1,
        slices=Jsonb({}),
        begun_at=before_now(NO_TIME),
    )


def a_proof(connection: Connection, view: str, partial: PartialRange, *, version: int = 1) -> None:
    """This partial was just compared with the raw bytes."""
    connection.execute(
        "INSERT INTO truelog.proof (view, version, day, partials) VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (view, version, day) DO UPDATE SET (partials, proved_at) = (excluded.partials, now())",
        (view, version, partial.day, partial.id),
    )
