"""Uses Great Expectations to validate the metrics of each event type's log days against their bounds.

A metric that lacks history or events has no bounds and is not checked; the log shows the reason. A log day has no
result if none of its metrics could be checked.
"""

import logging
from collections.abc import Iterable
from datetime import datetime

from truelog.batch.run_interval import RunInterval
from truelog.control import event_registry
from truelog.quality import gx_runner, quality_history, quality_metrics
from truelog.quality.gx_docs import DocsHead
from truelog.quality.gx_runner import ValidationRule
from truelog.quality.quality_history import ValidatedDay
from truelog.schema.quality import QualityMetric
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

log = logging.getLogger("truelog.quality")


def validate_days(
    settings: Settings, events: Iterable[str], span: RunInterval, run: str, by: str | None = None
) -> list[str]:
    """Measure and validate each log day in the span, and store the results under the run id.

    Return the event types that have log days in the span. If a user asked, the audit trail names the user.
    """
    types = event_registry.event_types(settings)
    measured = quality_metrics.measure_days(settings, [types[event] for event in events if event in types], span)
    with connect(settings, autocommit=True) as connection:
        for event, day in measured:
            _validate(settings, connection, event, day, run)
            if by is not None:
                about = f"{day:%Y-%m-%d %H:%M:%S}, {run}"
                audit_trail.record_operation(connection, OperationKind.VALIDATE, event, by, about)
    return list(dict.fromkeys(event for event, _ in measured))


def results_of_run(settings: Settings, run: str, event: str) -> list[ValidatedDay]:
    """The run's results for an event type, by day."""
    with connect(settings) as connection:
        return quality_history.days_of_run(connection, run, event)


def _validate(settings: Settings, connection: Connection, event: str, day: datetime, run: str) -> None:
    metrics = quality_history.day_metrics(connection, event, day)
    for each in metrics:
        log.info("%s %s: %s", event, f"{day:%Y-%m-%d %H:%M:%S}", each.description)
    rules = [_rule(event, day, each) for each in metrics if not each.unjudged]
    result = gx_runner.run_validation(settings, event, rules)
    unchecked = [each.description for each in metrics if each.unjudged]
    head = DocsHead(f"{event} on {day:%Y-%m-%d %H:%M:%S}", unchecked)
    gx_runner.save_validation(settings, connection, result, head, event=event, day=day, run=run)


def _rule(event: str, day: datetime, metric: QualityMetric) -> ValidationRule:
    row = f"event = '{event}' AND day = '{day.isoformat()}' AND name = '{metric.name}'"
    outside = f"{row} AND (value < least OR value > most)"
    return ValidationRule("truelog", "figure", metric.description, outside, metric.observed)
