"""The daily suite of each event type: its log days' figures within their bounds, judged by Great Expectations.

What nobody can tell yet, for want of history or of events, is no expectation: it is listed beside the verdict as not
judged, and a log day of which nothing can be told has no verdict.
"""

import logging
from collections.abc import Iterable
from datetime import datetime

from truelog.batch.run_interval import RunInterval
from truelog.quality import gx_runner, quality_history, quality_metrics
from truelog.quality.gx_runner import ValidationRule
from truelog.quality.quality_history import JudgedDay
from truelog.schema.event import load_events
from truelog.schema.quality import Figure
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

log = logging.getLogger("truelog.quality")


def judge_day(settings: Settings, events: Iterable[str], span: RunInterval, run: str) -> list[str]:
    """Measure and judge each log day in the span, and keep what came out under the name of the run.

    The event types that have such a day.
    """
    types = load_events()
    measured = quality_metrics.measure_day(settings, [types[event] for event in events], span)
    with connect(settings, autocommit=True) as connection:
        for event, day in measured:
            _judge(settings, connection, event, day, run)
    return list(dict.fromkeys(event for event, _ in measured))


def verdicts(settings: Settings, run: str, event: str) -> list[JudgedDay]:
    """What the run said of an event type, day by day."""
    with connect(settings) as connection:
        return quality_history.days_of_run(connection, run, event)


def _judge(settings: Settings, connection: Connection, event: str, day: datetime, run: str) -> None:
    found = quality_history.day_metrics(connection, event, day)
    for each in found:
        log.info("%s %s: %s", event, f"{day:%Y-%m-%d %H:%M:%S}", each.said)
    outcome = gx_runner.run_validation(
        settings, event, [_rule(event, day, each) for each in found if not each.unjudged]
    )
    title = f"{event} on {day:%Y-%m-%d %H:%M:%S}"
    gx_runner.save_validation(settings, connection, outcome, title, event=event, day=day, run=run)


def _rule(event: str, day: datetime, figure: Figure) -> ValidationRule:
    its = f"event = '{event}' AND day = '{day.isoformat()}' AND name = '{figure.name}'"
    return ValidationRule("truelog", "figure", figure.said, f"{its} AND (value < least OR value > most)")
