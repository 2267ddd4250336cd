"""A record keeps its meaning in every layer while declarations change, until its topic is judged again.

These tests use the real paths: Kafka to decoder to merge on one side; Kafka to archive file to typed columns, or to raw
bytes, to partials and rebuild on the other side.
"""

import random
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field

from tests.beds.archived import require_output
from tests.beds.lab import Lab
from tests.beds.remarks import PARTITIONS, Remarks
from tests.beds.schema_registry import StubRegistry, serving
from tests.nightly_cases import nightly_except
from truelog.archive import analyst
from truelog.archive.table import archived_positions
from truelog.batch.rebuild import Rebuilder
from truelog.control import event_registry
from truelog.kernel import merge
from truelog.log import topics
from truelog.reconcile.certificate import Certificate
from truelog.schema.event_version import UsedVersions
from truelog.schema.frames.kept_schema import KeptSchema
from truelog.support import faults
from truelog.support.errors import MeaningChanged
from truelog.support.faults import FaultInjectedError
from truelog.support.settings import Settings


@pytest.fixture
def remarks(platform: Settings, lab: Lab) -> Remarks:
    return Remarks(lab, f"said_{uuid.uuid4().hex[:8]}")


SHORT: Mapping[str, Any] = {"text": (str, Field(max_length=3))}
LONG: Mapping[str, Any] = {"text": (str, Field(max_length=6))}
OPTIONAL: Mapping[str, Any] = {"text": (str | None, None)}
WITH_COUNTRY: Mapping[str, Any] = {"text": (str, Field(max_length=3)), "country": (str | None, None)}
LEAST: Mapping[str, Any] = {"text": (str, Field(min_length=4))}
VERSIONS = (SHORT, LONG, OPTIONAL, LEAST, WITH_COUNTRY)
CLOSED: Mapping[str, Any] = {"text": (Literal["one", "four"], ...)}


def test_a_field_that_was_sent_before_it_was_declared(remarks: Remarks) -> None:
    """Finding 1: the stream counted the old records' countries, and the rebuild counted NULL."""
    remarks.declare(**SHORT)
    remarks.send({"text": "one", "country": "DE"})
    remarks.archive()
    remarks.declare(**WITH_COUNTRY)
    remarks.send({"text": "two", "country": "FR"}, {"text": "two"})
    remarks.key = "country"
    remarks.archive()
    remarks.stream()
    assert remarks.rows() == {None: 2, "FR": 1}
    remarks.require_equal()
    remarks.rejudge()
    assert remarks.rows() == {None: 1, "FR": 1, "DE": 1}
    remarks.require_equal()
    remarks.send({"text": "six", "country": "DE"})
    remarks.archive()
    remarks.stream()
    assert remarks.rows() == {None: 1, "FR": 1, "DE": 2}
    remarks.require_equal()


def test_framed_records_count_the_same_in_every_layer(remarks: Remarks) -> None:
    """The serializers of a schema registry write the records. The registry is gone before they are read."""
    fields = [{"name": name, "type": "string"} for name in ("event_id", "occurred_at", "text")]
    schema = {"type": "record", "name": "Said", "fields": fields}
    event = {"occurred_at": "2026-11-01T00:00:00Z", "text": "one"}
    event_type = remarks.declare(**SHORT)
    with serving(StubRegistry()) as registry:
        framed = [registry.avro(remarks.name, schema, event | {"event_id": str(number)}) for number in range(4)]
        [kept] = registry.schemas
    remarks.send_raw(framed[0])
    event_registry.keep_schemas(remarks.lab.settings, event_type.name, [KeptSchema(1, "AVRO", kept["schema"])])
    remarks.send_raw(*framed[1:3], framed[3][:-1], b"\0" + framed[3], partition=1)
    remarks.send({"text": "one"}, {"text": "two"})
    remarks.archive()
    remarks.stream()
    assert remarks.rows() == {"one": 3, "two": 1}
    remarks.require_equal()
    remarks.rejudge()
    assert remarks.rows() == {"one": 4, "two": 1}
    remarks.require_equal()


def test_fields_may_have_the_names_of_the_archives_columns(remarks: Remarks) -> None:
    """The record's value and the event's `value` are two columns of the archive, and so on."""
    names = ("value", "key", "headers", "erased", "log_day", "timestamp", "attempt", "row_hash")
    remarks.declare(**dict.fromkeys(names, (str, ...)))
    remarks.send({name: f"the {name}" for name in names}, dict.fromkeys(names, "both"), {"value": "without others"})
    remarks.archive()
    for name in names:
        remarks.key = name
        remarks.stream()
        assert remarks.rows() == {f"the {name}": 1, "both": 1}
        remarks.require_equal()
    columns = ", ".join(f'"_{name}"' for name in names[:5])
    with analyst.run_query(remarks.lab.settings, f"SELECT {columns} FROM {remarks.name} WHERE invalid IS NULL") as rows:
        assert sorted(rows.fetchall()) == [("both",) * 5, tuple(f"the {name}" for name in names[:5])]


def test_a_wider_bound_judges_only_new_records(remarks: Remarks) -> None:
    """Finding 3: a record was invalid in the archive's typed columns and valid in its raw bytes."""
    remarks.declare(**SHORT)
    remarks.send({"text": "four"}, {"text": "one"})
    remarks.stream()
    remarks.archive()
    before = remarks.reconcile()
    remarks.declare(**LONG)
    remarks.send({"text": "four"})
    remarks.archive()
    remarks.stream()
    assert remarks.rows() == {"one": 1, "four": 1}
    remarks.require_equal()
    first, both = remarks.certificate(before), remarks.certificate(remarks.reconcile())
    assert first.event_versions == {remarks.name: UsedVersions(0, (1,))}
    assert both.event_versions == {remarks.name: UsedVersions(0, (1, 2))}
    assert [remarks.verify(each) for each in (first, both)] == [("EQUAL", "")] * 2
    remarks.rejudge()
    assert remarks.rows() == {"one": 1, "four": 2}
    _require_superseded(remarks, first, "event versions 1 in reading 0, and are now judged by event versions 2 in")
    _require_superseded(remarks, both, "event versions 1, 2 in reading 0, and are now judged by event versions 2 in")
    after = remarks.certificate(remarks.reconcile())
    assert after.event_versions == {remarks.name: UsedVersions(1, (2,))}
    assert remarks.verify(after) == ("EQUAL", "")


def test_a_field_that_lists_its_values_later_keeps_earlier_records_until_a_rejudge(remarks: Remarks) -> None:
    """What an upgrade to closed verbs does: every layer agrees before it, after it, and after a rejudge.

    So does the output of the view: a rejudge publishes the rows that it changes and removes.
    """
    remarks.publish = True
    remarks.declare(**LONG)
    remarks.send({"text": "one"}, {"text": "eleven"})
    remarks.archive()
    remarks.declare(**CLOSED)
    remarks.send({"text": "four"}, {"text": "eleven"})
    remarks.archive()
    remarks.stream()
    assert remarks.rows() == {"one": 1, "eleven": 1, "four": 1}
    remarks.require_equal()
    remarks.rejudge()
    assert remarks.rows() == {"one": 1, "four": 1}
    require_output(remarks.lab.connection, remarks.compiled)
    remarks.require_equal()


def test_a_record_on_which_the_transform_failed_counts_after_a_rejudge(remarks: Remarks) -> None:
    """The exclusion of the earlier reading must not take the record from the view, its rebuilds or its certificate."""
    remarks.declare(**SHORT)
    remarks.counted = "CAST(coalesce(amount, 'none') AS int)"
    remarks.send({"text": "one", "amount": "7"})
    remarks.archive()
    remarks.declare(**SHORT, amount=(str | None, None))
    remarks.send({"text": "one", "amount": "5"}, {"text": "one", "amount": "x"})
    remarks.archive()
    remarks.stream()
    assert remarks.rows() == {"one": 5}
    remarks.require_equal()
    before = remarks.certificate(remarks.reconcile())
    remarks.rejudge()
    assert remarks.rows() == {"one": 12}
    remarks.require_equal()
    after = remarks.certificate(remarks.reconcile())
    assert [[offset for _, _, offset in each.excluded] for each in (before, after)] == [[0, 2], [2]]
    assert remarks.verify(after) == ("EQUAL", "")
    assert remarks.verify(before)[0] == "SUPERSEDED"


def test_records_that_are_no_events_after_a_rejudge_leave_no_exclusion(remarks: Remarks) -> None:
    remarks.counted = "CAST(amount AS int)"
    remarks.declare(**LONG, amount=(str, ...))
    remarks.send({"text": "one", "amount": "5"}, {"text": "four", "amount": "7"}, {"text": "four", "amount": "x"})
    remarks.archive()
    remarks.stream()
    before = remarks.certificate(remarks.reconcile())
    remarks.declare(**SHORT, amount=(str, ...))
    remarks.rejudge()
    after = remarks.certificate(remarks.reconcile(from_raw=True))  # finds no exclusion without a failure
    assert [[offset for _, _, offset in each.excluded] for each in (before, after)] == [[2], []]
    assert (before.rows, remarks.rows(), remarks.verify(after)) == (2, {"one": 5}, ("EQUAL", ""))
    _require_superseded(remarks, before, "event versions 1 in reading 0, and are now judged by event versions 2 in")


def _require_superseded(remarks: Remarks, certified: Certificate, reason: str) -> None:
    answer, found = remarks.verify(certified)
    assert (answer, reason in found) == ("SUPERSEDED", True), (answer, found)


def test_a_process_refuses_records_past_a_cut_that_it_does_not_know(remarks: Remarks) -> None:
    remarks.declare(**SHORT)
    old = remarks.types
    remarks.send({"text": "one"})
    remarks.stream()
    cut = topics.end_offsets(remarks.lab.settings, [remarks.name])
    remarks.declare(**LONG)
    remarks.send({"text": "four"})
    before = merge.positions(remarks.lab.connection, remarks.compiled)
    with pytest.raises(MeaningChanged):
        remarks.stream(old)
    with pytest.raises(MeaningChanged):
        remarks.archive(old)
    assert merge.positions(remarks.lab.connection, remarks.compiled) == before
    assert archived_positions(remarks.lab.settings, [remarks.name]).offsets[remarks.name] == {0: 0, 1: 0}
    remarks.stream(old, until=cut)
    remarks.archive()
    remarks.stream()
    remarks.require_equal()


def test_a_view_is_merged_under_one_reading_only(remarks: Remarks) -> None:
    remarks.declare(**SHORT)
    remarks.send({"text": "four"})
    remarks.archive()
    remarks.stream()
    remarks.declare(**LONG)
    remarks.send({"text": "four"})
    remarks.archive()
    event_registry.begin_reading(remarks.lab.settings, remarks.name)
    with pytest.raises(MeaningChanged, match="rejudge"):
        remarks.stream()
    assert (remarks.reconcile().verdict, remarks.rows()) == ("UNKNOWN", {})
    remarks.rejudge()
    remarks.stream()
    assert remarks.rows() == {"four": 2}
    remarks.require_equal()


@pytest.mark.parametrize(
    "point", nightly_except(["rejudge.before_commit"], ["rejudge.locked", "rejudge.before_commit"])
)
def test_a_rejudge_that_fails_changes_nothing_and_runs_again(
    remarks: Remarks, point: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    remarks.declare(**SHORT)
    remarks.send({"text": "four"}, {"text": "one"})
    remarks.archive()
    remarks.stream()
    remarks.declare(**LONG)
    monkeypatch.setenv("TRUELOG_FAULT_FIRED", str(tmp_path / "fired"))
    monkeypatch.setattr(faults, "_armed", f"{point}:1:raise")
    monkeypatch.setattr(faults, "_reached", 0)
    with pytest.raises(FaultInjectedError):
        remarks.rejudge()
    assert (tmp_path / "fired").exists()
    assert (remarks.rows(), _is_current(remarks)) == ({"one": 1}, False)
    monkeypatch.setattr(faults, "_armed", "")
    remarks.rejudge()
    assert remarks.rows() == {"one": 1, "four": 1}
    remarks.require_equal()


def test_law_all_layers_agree_however_declarations_and_batches_interleave(remarks: Remarks) -> None:
    """A batch may reach across a declaration. What is merged is compared before a rejudge hides it."""
    drawn, compared = random.Random(20261101), list[UsedVersions]()
    declared = drawn.sample(VERSIONS, len(VERSIONS))
    rejudged = drawn.randrange(1, len(VERSIONS) - 1)  # records of two versions come before it, and others after it
    for number, version in enumerate(declared):
        remarks.declare(**version)
        _send(remarks, drawn)
        if number > 0:
            _in_any_order(drawn, remarks.archive, remarks.stream)
            found = remarks.certificate(remarks.require_equal()).event_versions or {}
            compared.append(found[remarks.name])
        if number == rejudged:
            remarks.rejudge()
        _in_any_order(drawn, remarks.archive, partial(_send, remarks, drawn))
    assert {each.reading for each in compared if len(each.versions) > 1} == {0, 1}, compared
    assert sum(remarks.rows().values()) > 0


def _in_any_order(drawn: random.Random, *steps: Callable[[], None]) -> None:
    for step in drawn.sample(steps, len(steps)):
        step()


def _send(remarks: Remarks, drawn: random.Random) -> None:
    for partition in range(PARTITIONS):
        texts = drawn.sample(("one", "four", "eleven!"), k=2)
        sent = [{"text": text, "country": drawn.choice(("DE", "FR"))} for text in texts]
        remarks.send(*sent, partition=partition)


def _is_current(remarks: Remarks) -> bool:
    """Whether the view has counted its records under the present reading."""
    try:
        Rebuilder(remarks.context, remarks.lab.connection, remarks.compiled).require_reading()
    except MeaningChanged:
        return False
    return True
