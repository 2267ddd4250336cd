"""The quality of event types: the metrics of a log day, and their checks."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from psycopg.types.json import Jsonb

from tests.builders.rows import insert
from truelog.schema.quality import QualityMetric
from truelog.storage.database import Connection


def a_figure(connection: Connection, event: str, day: datetime, metric: QualityMetric) -> None:
    insert(connection, "figure", event=event, day=day, **asdict(metric))


def an_event_validation(
    connection: Connection,
    event: str,
    day: object,
    *,
    run: str = "run",
    success: bool | None = True,
    failed: Sequence[str] = (),
) -> None:
    """The checks of one log day of an event type."""
    result = Jsonb({})
    insert(connection, "validation", event=event, day=day, run=run, success=success, failed=list(failed), result=result)
