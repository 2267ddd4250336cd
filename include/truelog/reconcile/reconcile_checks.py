"""Validation: whether a comparison came out as it must, judged by Great Expectations and kept beside the comparison.

For each view that a run compared: the verdict is EQUAL, no row differs, as many rows were streamed as rebuilt and not
fewer than there must be, and the view's own checks hold for every row that readers see.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from psycopg.rows import class_row

from truelog.archive import archive_reader
from truelog.log.positions import Positions
from truelog.quality import gx_runner
from truelog.quality.gx_runner import ValidationResult, ValidationRule
from truelog.storage.database import Connection, connect
from truelog.support.errors import ArchiveBehind, BadInput
from truelog.support.settings import Settings
from truelog.views import catalogue
from truelog.views.view import View


@dataclass(frozen=True)
class Compared:
    """The newest comparison of a view that a run asked for."""

    id: int
    view: str
    version: int | None
    positions: dict[str, dict[str, int]]
    verdict: str
    reason: str

    @property
    def refused(self) -> bool:
        """The view could not even be looked at: its file is broken, or its code has changed."""
        return self.verdict == "UNKNOWN" and not self.positions


def require_known(settings: Settings, run: str) -> None:
    """Refuse a run in which the archive was behind a view: another try may come to an answer.

    A view that was refused will be so again: its own judgement says why.

    Raises:
        ArchiveBehind: with the reason of each such view.
    """
    with connect(settings) as connection:
        unknown = [c for c in _compared(connection, run).values() if c.verdict == "UNKNOWN" and not c.refused]
    if unknown:
        raise ArchiveBehind("; ".join(f"UNKNOWN: {c.view}: {c.reason}" for c in unknown))


def validate_run(settings: Settings, run: str, view: str) -> ValidationResult:
    """Judge the run's comparison of the view, and keep what came out.

    Raises:
        BadInput: the run has not compared the view, or could not.
    """
    with connect(settings, autocommit=True) as connection:
        compared = _compared(connection, run).get(view)
        if compared is None:
            raise BadInput(f"{run} has no comparison of {view}: did its job fail?")
        if compared.refused:
            raise BadInput(f"{view} could not be compared: {compared.reason}")
        declared = catalogue.load_view(view, settings.views_folder)
        rules = list(_rules(compared, declared, _floor(settings, connection, compared, declared)))
        outcome = gx_runner.run_validation(settings, view, rules)
        gx_runner.save_validation(settings, connection, outcome, f"{view} and its rebuild", reconciliation=compared.id)
    return outcome


def _compared(connection: Connection, run: str) -> dict[str, Compared]:
    with connection.cursor(row_factory=class_row(Compared)) as cursor:
        cursor.execute(
            "SELECT DISTINCT ON (view) id, view, version, positions, verdict, reason FROM truelog.reconciliation "
            "WHERE run = %s ORDER BY view, id DESC",
            (run,),
        )
        return {found.view: found for found in cursor}


def _floor(settings: Settings, connection: Connection, compared: Compared, view: View) -> int:
    """How many rows there must be at least.

    A view without `keep` never shrinks: it has all rows that it had whenever it was found equal, and one at least
    where it has read any event, so that two empty tables do not pass as equal. Of a view with `keep`, all rows may
    have left.
    """
    if view.keep:
        return 0
    found = connection.execute(
        "SELECT coalesce(max(row_count), 0) FROM truelog.reconciliation "
        "WHERE view = %s AND version = %s AND verdict = 'EQUAL' AND id < %s",
        (compared.view, compared.version, compared.id),
    ).fetchone()
    assert found is not None  # noqa: S101
    return int(str(found[0])) or int(_has_read_an_event(settings, compared, view))


def _has_read_an_event(settings: Settings, compared: Compared, view: View) -> bool:
    """Not just records: what is malformed adds nothing to any view."""
    ends = Positions.from_json(json.dumps(compared.positions))
    return any(archive_reader.holds_event(settings, topic, ends) for topic in view.reads)


def _rules(compared: Compared, view: View, floor: int) -> Iterator[ValidationRule]:
    row = f"id = {compared.id} AND"
    kept = ("truelog", "reconciliation")
    yield ValidationRule(*kept, "the streamed table equals its rebuild", f"{row} verdict <> 'EQUAL'")
    yield ValidationRule(*kept, "as many rows streamed as rebuilt", f"{row} missing <> extra")
    if floor:
        yield ValidationRule(*kept, f"at least {floor} rows", f"{row} row_count < {floor}")
    yield ValidationRule(*kept, "no row differs", f"{row} missing + extra + different > 0")
    if compared.verdict != "UNKNOWN":  # a later comparison may have put its own rows there
        rows = f"{compared.view}_v{compared.version}_diff"
        yield ValidationRule("recon", rows, "its table of differences is empty", f"reconciliation = {compared.id}")
    for check in view.checks:
        yield ValidationRule("views", compared.view, check, f"NOT ({check})")
