"""Validates reconciliations with Great Expectations, and stores each validation with its reconciliation.

For each view that a run compared, a validation requires that the verdict is EQUAL, that no row differs, that the stream
and the rebuild have the same number of rows, that this number reaches a minimum, and that every row that readers of
this version see passes the view's own checks.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from psycopg import sql
from psycopg.rows import class_row

from truelog.archive import reader as archive_reader
from truelog.control.view_tables import diff_tables
from truelog.erasure.ledger import Step
from truelog.log.positions import Positions
from truelog.quality import gx_runner
from truelog.quality.gx_docs import DocsHead
from truelog.quality.gx_runner import ValidationResult, ValidationRule
from truelog.storage.database import Connection, connect, read_value
from truelog.support.errors import ArchiveBehind, BadInput, TruelogError, describe
from truelog.support.settings import Settings
from truelog.views import catalogue
from truelog.views.catalogue import table_name
from truelog.views.view import View

log = logging.getLogger("truelog.reconcile")

# The most rows of the earlier EQUAL comparisons since which no row may have gone. Rows go while an erasure is performed
# and when a topic is judged again. A job that began before that may compare by the former reading for a while.
_MOST_ROWS = """
    SELECT coalesce(max(row_count), 0) FROM truelog.reconciliation r
    WHERE view = %(view)s AND version = %(version)s AND verdict = 'EQUAL' AND id < %(id)s AND NOT EXISTS (
        SELECT FROM truelog.erasure e JOIN truelog.erasure_end x ON x.erasure = e.id
        WHERE x.topic = ANY(%(reads)s) AND (e.step < %(proved)s OR e.advanced_at > r.finished_at)
    ) AND NOT EXISTS (
        SELECT FROM truelog.event_cut c WHERE c.event = ANY(%(reads)s) AND c.reading > 0
        GROUP BY c.event, c.topic_id, c.reading HAVING min(c.made_at) + interval '1 hour' > r.finished_at
    )
"""


@dataclass(frozen=True)
class Comparison:
    """A run's newest comparison of a view."""

    id: int
    view: str
    version: int | None
    positions: dict[str, dict[str, int]]
    verdict: str
    reason: str
    row_count: int
    missing: int
    extra: int
    different: int
    causes: Sequence[dict[str, Any]]

    @property
    def reasons(self) -> list[str]:
        """What explains the verdict."""
        causes = (f"{each['cause']} ({_rows(each['rows'])}): {each['about']}" for each in self.causes)
        return [each for each in (self.reason, *causes) if each]

    @property
    def relation(self) -> str:
        """What readers of this version see. Until a cut-over, the view's own name shows another version."""
        assert self.version is not None  # noqa: S101
        return table_name(self.view, self.version)

    @property
    def refused(self) -> bool:
        """Whether the view could not be compared at all: its file is broken, or its code has changed."""
        return self.verdict == "UNKNOWN" and not self.positions


def require_conclusive(settings: Settings, run: str) -> None:
    """Require that no comparison of the run is UNKNOWN because the archive was behind. A retry may succeed.

    A refused view does not fail the run, because a retry would refuse the view again. The view's own validation reports
    the refusal.

    Raises:
        ArchiveBehind: a comparison is UNKNOWN. The message contains the reason for each such view.
    """
    with connect(settings) as connection:
        unknown = [c for c in _comparisons(connection, run).values() if c.verdict == "UNKNOWN" and not c.refused]
    if unknown:
        raise ArchiveBehind("; ".join(f"UNKNOWN: {c.view}: {c.reason}" for c in unknown))


def validate_views(settings: Settings, run: str, views: Iterable[str], since: datetime) -> dict[str, str]:
    """Validate the run's comparison of each view, as `validate_run` does. Return what failed, by view.

    A view that cannot be validated fails alone.
    """
    failed = dict[str, str]()
    for view in views:
        try:
            failed[view] = "; ".join(validate_run(settings, run, view, since).failed)
        except Exception as error:  # the file of a view may contain anything
            if not isinstance(error, TruelogError):
                log.exception("%s could not be validated", view)
            failed[view] = describe(error)
        log.info("%s: %s", view, failed[view] or "valid")
    return {view: reason for view, reason in failed.items() if reason}


def validate_run(settings: Settings, run: str, view: str, since: datetime | None = None) -> ValidationResult:
    """Validate the run's comparison of the view and store the result. A comparison before `since` does not count.

    Raises:
        BadInput: the run did not compare the view, or could not.
    """
    with connect(settings, autocommit=True) as connection:
        comparison = _comparisons(connection, run, since).get(view)
        if comparison is None:
            raise BadInput(f"{run} has no comparison of {view}: did its job fail?")
        if comparison.refused:
            raise BadInput(f"{view} could not be compared: {comparison.reason}")
        declared = catalogue.load_view(view, settings.views_folder)
        minimum = _minimum_rows(settings, connection, comparison, declared)
        rules = list(_rules(comparison, declared, minimum, _diff_tables(connection, comparison)))
        result = gx_runner.run_validation(settings, view, rules)
        head = DocsHead(f"{view} and its rebuild", comparison.reasons)
        gx_runner.save_validation(settings, connection, result, head, reconciliation=comparison.id)
    return result


def _comparisons(connection: Connection, run: str, since: datetime | None = None) -> dict[str, Comparison]:
    with connection.cursor(row_factory=class_row(Comparison)) as cursor:
        columns = sql.SQL(", ").join(sql.Identifier(each.name) for each in fields(Comparison))
        newest = (
            "SELECT DISTINCT ON (view) {} FROM truelog.reconciliation "
            "WHERE run = %s AND finished_at >= coalesce(%s, finished_at) ORDER BY view, id DESC"
        )
        cursor.execute(sql.SQL(newest).format(columns), (run, since))
        return {comparison.view: comparison for comparison in cursor}


def _diff_tables(connection: Connection, comparison: Comparison) -> dict[str, str]:
    """The tables of differences of the compared version, by the name of the side table; "" for the view's own."""
    return {} if comparison.version is None else diff_tables(connection, comparison.view, comparison.version)


def _minimum_rows(settings: Settings, connection: Connection, comparison: Comparison, view: View) -> int:
    """The minimum number of rows that the view must have.

    A view from which no row disappears must have at least as many rows as in any earlier EQUAL comparison, unless an
    erasure or another judgement of a topic may have removed rows since. If the view has read an event, it must have at
    least one row, so that two empty tables do not pass as equal.
    """
    if view.may_lose_rows:
        return 0
    earlier = {"view": comparison.view, "version": comparison.version, "id": comparison.id}
    most = read_value(connection, _MOST_ROWS, earlier | {"reads": list(view.reads), "proved": Step.PROVED})
    return int(most) or int(_has_read_an_event(settings, comparison, view))


def _has_read_an_event(settings: Settings, comparison: Comparison, view: View) -> bool:
    """Whether the view has read a valid event. Malformed records add nothing to any view."""
    ends = Positions.from_json(json.dumps(comparison.positions))
    return any(archive_reader.holds_event(settings, topic, ends) for topic in view.reads)


def _rules(comparison: Comparison, view: View, minimum: int, diffs: Mapping[str, str]) -> Iterator[ValidationRule]:
    c = comparison

    def rule(means: str, broken: str, observed: str) -> ValidationRule:
        return ValidationRule("truelog", "reconciliation", means, f"id = {c.id} AND {broken}", observed)

    yield rule("the streamed table equals its rebuild", "verdict <> 'EQUAL'", c.verdict)
    yield rule("as many rows streamed as rebuilt", "missing <> extra", f"{c.missing:,} missing, {c.extra:,} extra")
    if minimum:
        yield rule(f"at least {_rows(minimum)}", f"row_count < {minimum}", _rows(c.row_count))
    counts = f"{c.missing:,} missing, {c.extra:,} extra, {c.different:,} different"
    yield rule("no row differs", "missing + extra + different > 0", counts)
    if comparison.verdict != "UNKNOWN":  # otherwise the table may contain the rows of another comparison
        for side, diff in diffs.items():
            name = f"its table of differences{f' in {side}' if side else ''} is empty"
            yield ValidationRule("recon", diff, name, f"_reconciliation = {comparison.id}")
    for check in view.checks:
        yield ValidationRule("views", comparison.relation, check, f"NOT ({check})")


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
