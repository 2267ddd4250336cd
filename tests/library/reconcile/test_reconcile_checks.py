"""The validation of comparisons: what fails, what is stored, and what Data Docs show."""

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.builders.comparisons import a_reconciliation
from tests.builders.erasures import an_erasure, forget_erasures
from tests.builders.event_types import a_reading, no_event_types
from tests.builders.rows import NO_TIME
from tests.library.archive_files import kafka_records, written
from truelog.archive.commit import Append, commit
from truelog.archive.table import ensure_table, identifier, open_catalog
from truelog.erasure import ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Step
from truelog.erasure.subject import Subject
from truelog.log.positions import Positions
from truelog.quality import gx_docs
from truelog.quality.rule_outcomes import rule_outcomes
from truelog.reconcile import reconcile_checks
from truelog.reconcile.reconcile import refused_result
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.schema.loading.events import load_events
from truelog.storage.database import Connection, read_value
from truelog.support.errors import ArchiveBehind, BadInput
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

RUN = "manual__judged"
PAGE_VIEW = b'{"event_id": "e", "occurred_at": "2026-11-20T00:00:00Z", "visitor_id": "v", "url": "http://h/p"}'
VIEW = '''"""A view for tests of validation."""
from truelog import Sum, View
VIEW = View(
    reads=("page_view",), transform=lambda page_view: page_view, key=("a",), measures={"n": Sum()},
    checks=("n > 0", "a <> '{oops}'"), KEEP
)
'''
TABLES = """
CREATE VIEW views.judged_v1 AS SELECT * FROM (VALUES ('x', 1::numeric), ('y', 2), (NULL, 3)) AS v (a, n);
CREATE TABLE recon.judged_v1_diff (
    a text, _key_json jsonb, _streamed jsonb, _rebuilt jsonb, _reconciliation bigint
);
"""
GONE = """
DROP VIEW views.judged_v1;
DROP TABLE recon.judged_v1_diff;
DELETE FROM truelog.validation;
DELETE FROM truelog.reconciliation WHERE view IN ('judged', 'broken');
"""


@dataclass(frozen=True)
class Judged:
    """A view whose comparisons a test makes up."""

    settings: Settings
    connection: Connection

    def compared(self, run: str | None = RUN, **found: Any) -> int:
        """Insert a row as `reconcile` does, and return its id."""
        usual: dict[str, Any] = {"positions": Jsonb({"page_view": {"0": 7}}), "row_count": 3, "run": run}
        return a_reconciliation(self.connection, "judged", **usual | found)

    def observed(self) -> dict[str, str]:
        """What the newest validation has observed of each rule."""
        number = read_value(self.connection, "SELECT max(id) FROM truelog.validation")
        return {each.rule: each.observed for each in rule_outcomes(self.connection, number)}

    def failed(self) -> tuple[str, ...]:
        return reconcile_checks.validate_run(self.settings, RUN, "judged").failed

    def docs(self) -> str:
        """The newest Data Docs page."""
        number = read_value(self.connection, "SELECT max(id) FROM truelog.validation")
        return (gx_docs.read_page(self.settings, number) or b"").decode()


@pytest.fixture
def judged(postgresql: Settings, s3: Settings, connection: Connection, tmp_path: Path) -> Iterator[Judged]:
    (tmp_path / "judged.py").write_text(VIEW.replace("KEEP", ""))
    connection.execute(TABLES.encode())
    yield Judged(postgresql.model_copy(update={"views_folder": tmp_path}), connection)
    connection.execute(GONE.encode())


def test_an_equal_view_passes_and_its_validation_is_stored(judged: Judged) -> None:
    made = judged.compared()
    assert judged.failed() == ()
    [(reconciliation, success, failed, result)] = judged.connection.execute(
        "SELECT reconciliation, success, failed, result FROM truelog.validation"
    ).fetchall()
    assert (reconciliation, success, failed) == (made, True, [])
    assert judged.observed() == {
        "the streamed table equals its rebuild": "EQUAL",
        "as many rows streamed as rebuilt": "0 missing, 0 extra",
        "no row differs": "0 missing, 0 extra, 0 different",
        "its table of differences is empty": "0 rows break it",
        "n > 0": "0 rows break it",
        "a <> '{oops}'": "0 rows break it",
    }
    assert judged.settings.database_password.get_secret_value() not in json.dumps(result)


def test_differing_rows_fail_and_are_stored(judged: Judged) -> None:
    causes = [{"cause": "wrong value by hand", "rows": 2, "about": "<b>"}]
    made = judged.compared(verdict="DIFFERENT", missing=1, different=1, causes=Jsonb(causes))
    row = f'\'["x"]\', \'{{"n": "NaN"}}\', NULL, {made}'
    judged.connection.execute(f"INSERT INTO recon.judged_v1_diff VALUES ('x', {row}), ('y', {row})".encode())
    assert judged.failed() == (
        "the streamed table equals its rebuild",
        "as many rows streamed as rebuilt",
        "no row differs",
        "its table of differences is empty",
    )
    kept = judged.connection.execute(
        "SELECT jsonb_path_query_array(result, '$.**.unexpected_rows') FROM truelog.validation"
    )
    assert '"a": "y"' in json.dumps(kept.fetchone())
    page = judged.docs()
    assert "<li>wrong value by hand (2 rows): &lt;b&gt;</li>" in page
    assert "1 missing, 0 extra, 1 different" in page
    assert "<td>NULL</td>" in page
    assert "<td>{&quot;n&quot;: &quot;NaN&quot;}</td>" in page


def test_more_rows_differ_than_the_sample_contains(judged: Judged) -> None:
    """Known traps are a verdict on the first two hundred rows only, and no verdict if both sides are empty."""
    made = judged.compared(verdict="DIFFERENT", different=1_000)
    judged.connection.execute(
        "INSERT INTO recon.judged_v1_diff "
        "SELECT n, jsonb_build_array(n), '{}', '{}', %s FROM generate_series(1, 1000) AS n",
        (made,),
    )
    assert judged.failed() == (
        "the streamed table equals its rebuild",
        "no row differs",
        "its table of differences is empty",
    )
    assert judged.observed()["its table of differences is empty"] == "1,000 rows break it"
    assert judged.observed()["no row differs"] == "0 missing, 0 extra, 1,000 different"


def test_rows_of_a_later_comparison_are_ignored(judged: Judged) -> None:
    """A manual comparison ran before the validation."""
    made = judged.compared()
    judged.connection.execute("INSERT INTO recon.judged_v1_diff VALUES ('x', '[]', '{}', '{}', %s)", (made + 1,))
    assert judged.failed() == ()


def test_an_empty_view_fails_if_the_log_contains_events(judged: Judged, s3: Settings) -> None:
    """The log contains three records that are not events, then an event."""
    judged.compared(row_count=0)
    assert judged.failed() == ()  # the archive is empty
    with open_catalog(s3) as catalog:
        ensure_table(catalog, load_events()["page_view"], "id", {0: 0})
        _archive(s3, catalog, range(3), b"{}")
        _archive(s3, catalog, range(3, 4), PAGE_VIEW)
        judged.compared(row_count=0, positions='{"page_view": {"0": 3}}')
        assert judged.failed() == ()
        judged.compared(row_count=0, positions='{"page_view": {"0": 4}}')
        assert judged.failed() == ("at least 1 row",)
        assert judged.observed()["at least 1 row"] == "0 rows"


def _archive(settings: Settings, catalog: "Catalog", offsets: range, value: bytes) -> None:
    table = catalog.load_table(identifier("page_view"))
    files = tuple(file.data_file for file in written(settings, table.metadata, kafka_records(0, offsets, value)))
    commit(catalog, Append("page_view", "id", {0: offsets.start}, {0: offsets.stop}, {0: len(offsets)}, files))


def test_a_view_may_shrink_only_with_keep(judged: Judged) -> None:
    judged.compared(run=None, row_count=5)
    judged.compared(run=None, row_count=9, verdict="DIFFERENT")
    judged.compared(row_count=4)
    assert judged.failed() == ("at least 5 rows",)
    kept = VIEW.replace("KEEP", 'keep="7 days"')
    (judged.settings.views_folder / "judged.py").write_text(kept)
    assert judged.failed() == ()


@pytest.mark.parametrize(("topic", "least"), [("page_view", ()), ("click", ("at least 5 rows",))])
def test_a_view_may_shrink_by_an_erasure_of_its_topics(
    judged: Judged, request: pytest.FixtureRequest, topic: str, least: tuple[str, ...]
) -> None:
    request.addfinalizer(lambda: forget_erasures(judged.connection))
    subjects = frozenset({Subject.of(b"secret", "visitor_id", "ann")})
    ends = Positions({topic: {0: 7}}, {topic: "id"})
    judged.compared(run=None, row_count=5)
    erasure = Erasure(uuid4(), subjects, {topic: ("visitor_id",)}, ends)
    an_erasure(judged.connection, erasure, Step.COPIES)
    judged.compared(row_count=4)
    assert judged.failed() == least, "while it is unfinished"
    ledger.finish(judged.connection, erasure, Step.PROVED)
    assert judged.failed() == least
    judged.compared(row_count=3)
    assert judged.failed() == least
    judged.compared(run=None, row_count=4)
    judged.compared(row_count=3)
    assert judged.failed() == (least or ("at least 4 rows",))


def test_a_view_may_shrink_when_a_topic_is_judged_again(judged: Judged, request: pytest.FixtureRequest) -> None:
    """A job that began before may find it EQUAL by the former reading for a while."""
    request.addfinalizer(lambda: no_event_types(judged.connection))
    judged.compared(run=None, row_count=6, ago=timedelta(hours=3))
    judged.compared(run=None, row_count=5)
    judged.compared(row_count=4)
    a_reading(judged.connection, "click", timedelta(hours=2), 1)
    assert judged.failed() == ("at least 6 rows",)
    a_reading(judged.connection, "page_view", timedelta(hours=2), 1)
    assert judged.failed() == ("at least 5 rows",)
    a_reading(judged.connection, "page_view", NO_TIME, 1, version=2)  # a new version takes no row away
    assert judged.failed() == ("at least 5 rows",)
    a_reading(judged.connection, "page_view", timedelta(minutes=30), 2, version=3)
    assert judged.failed() == ()


def test_the_checks_of_the_view_apply_to_every_row(judged: Judged) -> None:
    judged.compared()
    judged.connection.execute(
        b"CREATE OR REPLACE VIEW views.judged_v1 AS SELECT 'x'::text AS a, "
        b"(CASE WHEN n = 1000 THEN 0 ELSE n END)::numeric AS n FROM generate_series(1, 1000) AS n"
    )
    assert judged.failed() == ("n > 0",)
    assert judged.observed()["n > 0"] == "1 row breaks it"


def test_the_checks_apply_to_the_version_that_was_compared(judged: Judged) -> None:
    """Before a cut-over, the view's name shows the rows of the former version."""
    judged.connection.execute("CREATE VIEW views.judged AS SELECT 'oops'::text AS former")
    judged.compared()
    try:
        assert judged.failed() == ()
        assert judged.observed()["n > 0"] == "0 rows break it"
    finally:
        judged.connection.execute("DROP VIEW views.judged")


def test_data_docs_show_hostile_values_as_text(judged: Judged) -> None:
    judged.compared()
    hostile = "<script>document.title='owned'</script> ${n} $a \" onload=\"x <img src=http://a.example onerror=x>"
    judged.connection.execute(
        sql.SQL("CREATE OR REPLACE VIEW views.judged_v1 AS SELECT {}::text AS a, 0::numeric AS n").format(hostile)
    )
    assert judged.failed() == ("n > 0",)
    page = judged.docs()
    assert html.escape(hostile) in page
    assert "a &lt;&gt; '{oops}'" in page  # the check of the view
    tags = re.findall(r"<([^>]*)>", page.partition("<body>")[2])
    assert [each for each in tags if re.search(r"script|img|link|href|src|\bon\w+=|style", each)] == []


def test_unknown_fails_with_its_reason(judged: Judged) -> None:
    judged.compared(verdict="EQUAL")
    reconcile_checks.require_conclusive(judged.settings, RUN)
    judged.compared(verdict="UNKNOWN", reason="the archive is 12 events behind.")
    with pytest.raises(ArchiveBehind, match=r"^UNKNOWN: judged: the archive is 12 events behind\.$"):
        reconcile_checks.require_conclusive(judged.settings, RUN)
    assert "the streamed table equals its rebuild" in judged.failed()
    judged.compared()
    reconcile_checks.require_conclusive(judged.settings, RUN)  # a retry reached a verdict


def test_a_refused_view_fails_and_is_not_compared_again(judged: Judged) -> None:
    """A broken file may have no version."""
    refused_result(judged.settings, "judged", ReconcileRequest(run=RUN), reason="SyntaxError: invalid syntax")
    reconcile_checks.require_conclusive(judged.settings, RUN)
    with pytest.raises(BadInput, match="judged could not be compared: SyntaxError"):
        reconcile_checks.validate_run(judged.settings, RUN, "judged")


def test_a_run_without_a_comparison_is_not_validated(judged: Judged) -> None:
    judged.compared(run="another run")
    with pytest.raises(BadInput, match="has no comparison of judged"):
        reconcile_checks.validate_run(judged.settings, RUN, "judged")


def test_only_what_the_last_try_has_compared_is_validated(judged: Judged) -> None:
    now = datetime.now(UTC)
    judged.compared(ago=timedelta(hours=1), row_count=4)

    def failed(since: datetime) -> dict[str, str]:
        return reconcile_checks.validate_views(judged.settings, RUN, ["judged"], since)

    assert failed(now - timedelta(hours=2)) == {}
    assert failed(now) == {"judged": f"{RUN} has no comparison of judged: did its job fail?"}


def test_a_view_that_cannot_be_validated_fails_alone(judged: Judged) -> None:
    since = datetime.now(UTC) - timedelta(minutes=1)
    judged.compared()
    a_reconciliation(judged.connection, "broken", run=RUN)
    (judged.settings.views_folder / "broken.py").write_text("VIEW =")
    found = reconcile_checks.validate_views(judged.settings, RUN, ["broken", "judged", "unknown"], since)
    assert found.keys() == {"broken", "unknown"}
    assert "has no comparison of unknown" in found["unknown"]
    judged.compared(verdict="DIFFERENT", different=1)
    found = reconcile_checks.validate_views(judged.settings, RUN, ["broken", "judged"], since)
    assert found["judged"] == "the streamed table equals its rebuild; no row differs"
