"""The request for a reconcile, and its result: a verdict with row counts, causes and the first differing rows."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from truelog.batch.base import Rebuilt
from truelog.log.positions import Positions
from truelog.storage import audit_trail, exact_json
from truelog.storage.database import Connection

NOWHERE = Positions()
SAMPLE = 100  # maximum number of differing rows stored with the result; the counts cover all differing rows


@dataclass(frozen=True)
class ReconcileResult:
    """The verdict of a comparison, the row counts, and the first differing rows with both values."""

    view: str
    version: int | None  # None if the view's file cannot be read
    positions: Positions  # empty if the view was not compared
    rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    repaired: int = 0
    verdict: str = "UNKNOWN"
    reason: str = ""
    sample: tuple[dict[str, Any], ...] = ()
    mended_days: tuple[str, ...] = ()  # log days whose partial differed from the raw bytes and was replaced
    id: int | None = None  # id of the row in truelog.reconciliation
    causes: tuple[dict[str, Any], ...] = ()  # why rows differ: each cause with its row count and evidence
    certificate: str | None = None  # id of the certificate, if any
    base: str | None = None  # id of the certificate from which an incremental comparison began
    rebuilt: Rebuilt | None = field(default=None, repr=False)  # the hashed rebuild at `positions`, if EQUAL

    @property
    def equal(self) -> bool:
        return self.verdict == "EQUAL"

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "rebuilt"}
        return plain | {"positions": json.loads(self.positions.as_json()), "equal": self.equal}


@dataclass(frozen=True)
class ReconcileRequest:
    """What a reconcile does in addition to the comparison.

    from_raw: parse the raw bytes instead of reading partials and typed columns, and check the skipped records. If the
        transform does not fail on a skipped record, this is a difference.
    repair: repair the differing rows and compare again, unless more rows differ than the settings allow.
    audit: first audit the partials that are due.
    incremental: begin from the rows that an earlier comparison has proved, if there are any (`truelog.batch.base`).
    doer: the person or process that requests the reconcile.
    exempt: views that are compared but not repaired.
    run: the id of the Airflow run, or None on the command line.
    """

    from_raw: bool = False
    repair: bool = False
    audit: bool = False
    incremental: bool = False
    doer: str = audit_trail.AIRFLOW
    exempt: frozenset[str] = frozenset()
    run: str | None = None

    def for_view(self, view: str) -> "ReconcileRequest":
        return replace(self, repair=self.repair and view not in self.exempt)


COMPARE_ONLY = ReconcileRequest()


def save(connection: Connection, result: ReconcileResult, request: ReconcileRequest) -> ReconcileResult:
    """Store the result, and return it with its id."""
    row = connection.execute(
        "INSERT INTO truelog.reconciliation "
        "(view, version, positions, from_raw, row_count, missing, extra, different, repaired, verdict, reason, sample, "
        "causes, run, base, bytes) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, "
        "pg_total_relation_size(to_regclass(format('state.%%I', %s::text)))) RETURNING id",
        (
            result.view,
            result.version,
            result.positions.as_json(),
            request.from_raw,
            result.rows,
            result.missing,
            result.extra,
            result.different,
            result.repaired,
            result.verdict,
            result.reason,
            exact_json.write(result.sample),
            json.dumps(result.causes),
            request.run,
            result.base,
            f"{result.view}_v{result.version}",
        ),
    ).fetchone()
    assert row is not None  # noqa: S101
    return replace(result, id=int(str(row[0])))


def exit_code(results: Iterable[ReconcileResult]) -> int:
    """0 if all results are EQUAL, 1 if any result is DIFFERENT, 3 if none is DIFFERENT but at least one is UNKNOWN."""
    verdicts = {r.verdict for r in results}
    return 1 if "DIFFERENT" in verdicts else 3 if "UNKNOWN" in verdicts else 0
