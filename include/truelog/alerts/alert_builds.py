"""Finds batch-only views that were not built for too long."""

from typing import Any

from truelog.alerts.alert_rules import Finding, Observation
from truelog.storage import db_snapshot
from truelog.support.durations import in_words
from truelog.support.settings import Settings
from truelog.views import catalogue

BUILD_KINDS = ("build_overdue",)
_OVERDUE = """
    SELECT view, built_at IS NOT NULL, age, reason FROM truelog.batch_only LEFT JOIN truelog.batch_refusal USING (view)
    WHERE view = ANY(%s) AND age > %s ORDER BY view
"""


def observe(settings: Settings) -> Observation:
    """One finding for each view whose last build is too old."""
    with db_snapshot.read_snapshot(settings) as connection:
        names = catalogue.view_names(settings.views_folder)
        overdue: list[tuple[Any, ...]] = connection.execute(
            _OVERDUE, (names, settings.alert_unbuilt_seconds)
        ).fetchall()
    return Observation(tuple(Finding("build_overdue", view, _cause(*facts)) for view, *facts in overdue))


def _cause(was_built: bool, age: float, refusal: str | None) -> str:
    since = f"its last build ended {in_words(age)} ago" if was_built else f"created {in_words(age)} ago and never built"
    return f"{since}; it cannot be built: {refusal}" if refusal else since
