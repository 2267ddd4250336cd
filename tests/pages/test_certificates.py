"""Tests of the certificates page: the list, the file to download, and the stored answers of verifications."""

import json
import runpy
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from runtime.airflow_client import Airflow
from tests.pages.fetch import fetch
from tests.pages.plausible import HOSTILE
from truelog.log.positions import Positions
from truelog.reconcile import certificate, certificate_checks, certificate_store
from truelog.reconcile.certificate import Certificate
from truelog.reconcile.certificate_verifier import CertificateCheck, VerificationVerdict
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.support.settings import PROJECT, Settings

MADE = Certificate(
    view="page_audience",
    version=1,
    positions=Positions({"page_view": {0: 7}}, {"page_view": "id"}),
    excluded=(),
    fingerprint="2:f",
    columns={"minute": "timestamptz"},
    key=("minute",),
    rows=3,
    buckets={7: (3, "0" * 32)},
    from_raw=False,
    made_by={"truelog": "0.2.0"},
    made_at=datetime(2026, 11, 24, 6, tzinfo=UTC),
)


@pytest.fixture
def certified(filled: Settings) -> Iterator[Settings]:
    """A certificate in the bucket, of a view that has no other."""
    with connect(filled, autocommit=True) as connection:
        [(last,)] = connection.execute("SELECT max(id) FROM truelog.reconciliation").fetchall()
        certificate_store.store(filled, connection, MADE, int(str(last)))
        yield filled
        connection.execute("DELETE FROM truelog.certificate WHERE id = %s", (MADE.id,))
        connection.execute("DELETE FROM truelog.certificate_check")


def test_a_certificate_is_saved_as_verify_reads_it(
    certified: Settings, pages: Settings, users: dict[str, Airflow]
) -> None:
    saved = fetch(users["analyst"], "GET", f"export/certificate?id={MADE.id}")
    assert f'filename="{MADE.id}.json"' in saved.headers["Content-Disposition"]
    assert certificate.read_certificate(saved.read()) == MADE
    for name in ("../../etc/passwd", "/etc/passwd", "latest:page_audience"):
        assert fetch(users["admin"], "GET", f"export/certificate?id={name}").status == 404


def test_each_view_has_its_newest_certificate_and_the_last_answer(
    certified: Settings, pages: Settings, users: dict[str, Airflow], monkeypatch: pytest.MonkeyPatch
) -> None:
    main = runpy.run_path(str(PROJECT / "spark_apps" / "verify.py"))["main"]
    monkeypatch.setenv("TRUELOG_HOME", str(certified.home))
    for answer in (VerificationVerdict.EQUAL, VerificationVerdict.DIFFERENT):
        check = CertificateCheck(MADE.id, MADE.view, 1, MADE.made_at.isoformat(), answer, reason=HOSTILE[0])
        monkeypatch.setitem(main.__globals__, "verify_certificate", lambda *_, check=check: check)
        monkeypatch.setattr(sys, "argv", ["verify.py", "--run", "manual__1", "--doer", "oncall", MADE.id])
        assert main() == 0
    found = json.load(fetch(users["analyst"], "GET", "data/certificates"))
    assert [each["view"] for each in found["certificates"]] == ["click_through", "page_audience", "page_views"]
    assert found["certificates"][1]["digest"] == MADE.digest
    assert found["without"] == ["broken", "request_rates"]
    assert found["may_verify"] is False
    last = found["checks"][MADE.id]
    assert (last["answer"], last["reason"], last["run"], last["doer"]) == (
        "DIFFERENT",
        HOSTILE[0],
        "manual__1",
        "oncall",
    )
    one = json.load(fetch(users["oncall"], "GET", "data/certificates?view=page_views"))
    assert (len(one["certificates"]), one["may_verify"]) == (48, True)
    with connect(certified) as connection:
        assert certificate_checks.latest_checks(connection, ["other"]) == {}
        recorded = audit_trail.latest_operations(connection, 2, "verify")
    assert [(each.subject, each.doer, each.about) for each in recorded] == [
        (MADE.id, "oncall", "DIFFERENT"),
        (MADE.id, "oncall", "EQUAL"),
    ]
