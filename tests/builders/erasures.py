"""Erasures in the ledger."""

from collections.abc import Sequence
from datetime import datetime

from tests.builders.rows import insert
from truelog.erasure import hold, ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import CoveredDay, Step
from truelog.storage.database import Connection


def an_erasure(connection: Connection, erasure: Erasure, step: Step = Step.REWRITTEN, *counts: CoveredDay) -> Erasure:
    """An erasure whose last finished step is this one, with the numbers of its covered records."""
    assert ledger.restore(connection, erasure, step)
    ledger.record_counts(connection, erasure, counts)
    return erasure


def a_subject(connection: Connection, erasure: Erasure, field: str, hashed: bytes) -> None:
    insert(connection, "erasure_subject", erasure=erasure.id, field=field, hash=hashed)


def an_end(connection: Connection, erasure: Erasure, topic_id: str, fields: Sequence[str]) -> None:
    insert(
        connection,
        "erasure_end",
        erasure=erasure.id,
        topic="like",
        partition=5,
        topic_id=topic_id,
        end_offset=1,
        fields=list(fields),
    )


def a_count(connection: Connection, erasure: Erasure, topic: str, log_day: datetime, records: int) -> None:
    insert(connection, "erasure_count", erasure=erasure.id, topic=topic, partition=0, log_day=log_day, records=records)


def forget_erasures(connection: Connection) -> None:
    """The ledger is empty, and no reading of the topic of erasures has found that it lacks any."""
    for table in ("erasure_count", "erasure_end", "erasure_subject", "erasure"):
        connection.execute(f"DELETE FROM truelog.{table}".encode())
    hold.record_reading(connection, 0)


def restored_from_a_dump(connection: Connection) -> None:
    """The ledger was last compared with the topic of erasures in another database."""
    connection.execute("UPDATE truelog.erasure_reading SET database = 0")


def never_read(connection: Connection) -> None:
    """The ledger was not compared with the topic of erasures yet."""
    connection.execute("DELETE FROM truelog.erasure_reading")


def lacks(connection: Connection, erasures: int) -> None:
    """The ledger was found to lack so many erasures."""
    hold.record_reading(connection, erasures)
