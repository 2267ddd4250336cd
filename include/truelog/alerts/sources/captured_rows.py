"""Finds rows of captured tables that their views cannot have: invalid changes, and what a comparison has found."""

from collections.abc import Mapping
from datetime import UTC, datetime

from truelog.alerts.rules import Finding, Observation
from truelog.capture import invalid_changes, last_comparison
from truelog.capture.invalid_changes import Summary
from truelog.capture.source_table import captured_types
from truelog.control import event_registry
from truelog.storage.kept_sessions import kept
from truelog.support.settings import Settings

_SECONDS = 5.0  # of each look at the changes of all tables

CAPTURED_ROW_KINDS = ("capture_invalid", "capture_differs")


def observe(settings: Settings) -> Observation:
    """Look at the changes since the last look, and at the last comparison of each captured table."""
    if not settings.capture:
        return Observation()
    names = captured_types(settings)
    with kept(settings) as connection:
        types = [each for name, each in event_registry.load_types(connection).items() if name in names]
        for each in types:
            invalid_changes.follow(settings, connection, each, _SECONDS / len(types))
        invalid = invalid_changes.summaries(connection, names)
        compared = last_comparison.load(connection, names)
    now = datetime.now(UTC)
    reasons = {name: reason for name, last in compared.items() if (reason := last_comparison.problem(last, now))}
    differing = (Finding("capture_differs", name, reason) for name, reason in reasons.items())
    return Observation((*invalid_findings(invalid), *differing))


def invalid_findings(invalid: Mapping[str, Summary]) -> list[Finding]:
    """The tables with invalid rows. The cause has no key, because receivers get it and a key may identify a person."""
    found = []
    for name, each in invalid.items():
        behind = f"; {each.unjudged:,} records are not judged yet" if each.unjudged else ""
        if each.rows:
            found.append(Finding("capture_invalid", name, f"{each.rows:,} rows. {'; '.join(each.reasons)}{behind}"))
    return found
