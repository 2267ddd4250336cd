"""Verifying a certificate needs only the bucket and reports everything that does not match."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from psycopg import OperationalError
from pydantic import SecretStr

from tests.beds.archived import Archived
from truelog.batch.rebuild import Rebuilder
from truelog.log import records
from truelog.log.positions import Positions
from truelog.reconcile import certificate, certificate_store
from truelog.reconcile.certificate import Certificate
from truelog.reconcile.certificate_verifier import (
    CertificateCheck,
    CertificateVerifier,
    VerificationVerdict,
    compare_buckets,
)
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileResult
from truelog.storage.database import connect
from truelog.support.errors import BadInput
from truelog.tables.compiler import compile_view

HOSTILE = "http://x/😀'\"<script>\u0000"


def old_and_poisoned(ground: Archived) -> None:
    ground.click(0, [("old", "5", 0), ("a", "1", 5_000), ("b", "2", 5_000), (HOSTILE, "3", 9_000)])
    ground.click(1, [("a", "4", 5_000), ("poison", "x", 9_000)])
    ground.tick(8_000)
    ground.stream()  # excludes the click whose `search_id` is not a number


pytestmark = pytest.mark.ground(filled=old_and_poisoned)


def certified(ground: Archived) -> tuple[ReconcileResult, Certificate]:
    found = reconcile(ground.lab.context, ground.compiled)
    assert (found.verdict, found.rows) == ("EQUAL", 3), found  # one row has expired, and one record was skipped
    assert found.certificate is not None
    return found, certificate_store.find_certificate(ground.lab.settings, found.certificate)


def test_a_rebuild_that_loses_rows_is_not_certified(ground: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    """The streamed rows do not come from the rebuild, so a defect of the rebuild is a difference."""
    states = Rebuilder.states
    monkeypatch.setattr(Rebuilder, "states", lambda *given: states(*given).where("url <> 'b'"))
    ground.click(0, [("c", "1", 9_000)])
    ground.stream()
    found = reconcile(ground.lab.context, ground.compiled)
    assert (found.verdict, found.extra, found.certificate) == ("DIFFERENT", 1, None)


def without_database(ground: Archived) -> CertificateVerifier:
    """A verifier whose Spark session has no catalog and whose settings cannot reach PostgreSQL."""
    settings = ground.lab.settings.model_copy(update={"database_port": 1, "database_password": SecretStr("wrong")})
    with pytest.raises(OperationalError), connect(settings):
        pass
    spark = ground.lab.spark.newSession()
    assert spark.conf.get("spark.sql.catalog.archive", None) is None
    schemas = {topic: records.schema(each) for topic, each in ground.lab.types.items()}
    compiled = compile_view(spark, ground.compiled.name, ground.compiled.view, schemas)
    return CertificateVerifier(spark, settings, ground.lab.types, compiled)


def require_that_altered_content_is_refused(made: Certificate) -> None:
    assert certificate.read_certificate(made.as_bytes()) == made
    for broken in (
        made.as_bytes().replace(b'"rows":3', b'"rows":4'),
        made.as_bytes().replace(b'{"buckets"', b'{"added":1,"buckets"'),
        made.as_bytes()[:-9],
        b"[]",
        b"{}",
        b"\xff",
    ):
        assert broken != made.as_bytes()
        with pytest.raises(BadInput):
            certificate.read_certificate(broken)


def test_an_equal_reconcile_stores_a_certificate_that_can_be_found(ground: Archived, tmp_path: Path) -> None:
    found, made = certified(ground)
    settings, view = ground.lab.settings, ground.compiled.name

    assert (made.view, made.rows, made.positions) == (view, 3, ground.positions)
    assert (made.positions.ids, made.excluded) == (ground.ids, (("click", 1, 1),))
    assert (made.fingerprint, made.from_raw) == (ground.compiled.fingerprint, False)
    assert set(made.made_by) == {"truelog", "spark", "python", "java", "tzdata"}
    assert all(made.made_by.values())
    assert sum(rows for rows, _ in made.buckets.values()) == 3
    kept = ground.lab.connection.execute(
        "SELECT view, version, reconciliation, row_count, digest, object FROM truelog.certificate WHERE id = %s",
        (made.id,),
    ).fetchone()
    address = f"s3://{settings.s3_bucket}/certificates/{view}/{made.id}.json"
    assert kept == (view, 1, found.id, 3, made.digest, address)

    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(json.loads(made.as_bytes()), indent=2))  # the JSON layout does not matter
    _, second = certified(ground)
    for name in (made.id, address, address.removeprefix(f"s3://{settings.s3_bucket}/"), str(file)):
        assert certificate_store.find_certificate(settings, name) == made
    assert certificate_store.find_certificate(settings, f"latest:{view}") == second
    assert [entry.id for entry in certificate_store.newest_certificates(ground.lab.connection, view, 9)] == [
        second.id,
        made.id,
    ]
    require_that_altered_content_is_refused(made)
    for name in ("nothing", "latest:nothing"):
        with pytest.raises(BadInput, match=r"no .*certificate"):
            certificate_store.find_certificate(settings, name)


def test_verification_needs_no_database_and_reports_what_does_not_match(ground: Archived) -> None:
    _, made = certified(ground)
    ground.click(0, [("a", "9", 9_000)])  # the archive grows
    verifier = without_database(ground)

    def answer(**changed: Any) -> CertificateCheck:
        return verifier.verify(replace(made, **changed))

    found = answer()
    assert (found.answer, found.rows, found.unequal_buckets, found.reason) == (VerificationVerdict.EQUAL, 3, 0, "")
    assert found.as_dict()["equal"] is True

    bucket, (rows, hashed) = next(iter(made.buckets.items()))
    buckets = made.buckets | {bucket: (rows, f"{int(hashed, 16) ^ 1:032x}")}
    elsewhere = made.made_by | {"spark": "3.0.0", "arrow": "9"}
    found = compare_buckets(replace(made, buckets=buckets, made_by=elsewhere), {"": made.buckets}, made.made_by)
    assert (found.answer, found.unequal_buckets) == (VerificationVerdict.DIFFERENT, 1)
    assert f"spark 3.0.0 then, {made.made_by['spark']} now; arrow 9 then, unknown now" in found.reason

    older = answer(fingerprint="0" * 64)
    assert older.answer == VerificationVerdict.SUPERSEDED
    assert "code 000000000000;" in older.reason
    assert ground.compiled.fingerprint[:12] in older.reason
    assert answer(version=2).answer == VerificationVerdict.SUPERSEDED

    ahead = answer(positions=Positions({"click": {0: 9, 1: 2}, "ticks": {0: 1}}, ground.ids))
    assert (ahead.answer, ahead.reason.partition(".")[0]) == (
        VerificationVerdict.UNKNOWN,
        "the archive of click is 4 events behind",
    )
    other = answer(positions=Positions(made.positions.offsets, ground.ids | {"click": "made again"}))
    assert (other.answer, "deleted and recreated" in other.reason) == (VerificationVerdict.UNKNOWN, True)

    hiding = answer(excluded=(("click", 0, 1), ("click", 1, 1)))
    assert hiding.answer == VerificationVerdict.DIFFERENT
    assert hiding.reason.endswith("does not fail: click 0:1")
