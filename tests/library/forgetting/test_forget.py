"""A person is forgotten: no byte of the person is left in tables, objects and topics, and views equal their rebuild.

The command dies in each step, after it has done its work and before the ledger says so.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from pydantic import SecretStr
from pyspark.sql import SparkSession

from tests.beds.lab import renamed
from tests.builders.commands import an_unread_event, forget_commands
from tests.builders.comparisons import a_repair
from tests.builders.erasures import an_erasure, forget_erasures
from tests.builders.views import a_view, is_gone
from tests.builders.views import forget as forget_views
from tests.chosen_views import copy_views
from tests.command import answer, process_answer, truelog, truelog_process
from tests.dying import dying_at
from tests.library.forgetting.byte_search import places_with
from tests.library.forgetting.relayed import relayed
from tests.library.forgetting.town import (
    FIELDS,
    NEIGHBOUR,
    PERSON,
    SUBJECTS,
    THIRD,
    TRACES,
    TWEET,
    VIEWS,
    Town,
    new_town,
)
from tests.library.relay.read_topic import table
from truelog.archive.audit_evidence import run_audit
from truelog.control import view_versions
from truelog.erasure import ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Step
from truelog.forgetting import command_copies, erasure_log, outputs
from truelog.forgetting.erase_view import ErasedView
from truelog.forgetting.forget import Forgetting, add_published, forget, perform_all
from truelog.forgetting.request import made_versions, wanted
from truelog.log.access import RELAY_PLACES
from truelog.reconcile import certificate_store
from truelog.reconcile.certificate_verifier import CertificateCheck, CertificateVerifier
from truelog.relay.view_feed import topic_of
from truelog.replays.replay import Wanted, make_from
from truelog.replays.store import replays
from truelog.sources.access_log import kept_aside
from truelog.spark.session import session
from truelog.storage.database import Connection, connect
from truelog.support.errors import BadInput, NotForgotten, NotSetUp
from truelog.support.files import private_folder
from truelog.support.settings import Settings

DOER = "tester"
ERASED = {"dead_letter": 1, "follow": 2, "page_view": 2, "profile": 1, "tweet": 1}


@pytest.fixture(scope="module", autouse=True)
def _views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TRUELOG_VIEWS_FOLDER", str(copy_views(tmp_path_factory.mktemp("views"), *VIEWS)))
        yield


def lived_in(spark: SparkSession, connection: Connection) -> Town:
    made = new_town(spark, Settings(), connection)
    made.live()
    made.archive()
    made.stream()
    return made


@pytest.fixture
def town(spark: SparkSession, platform: Settings, connection: Connection) -> Town:
    """A town in which the person has lived since the last erasure."""
    return lived_in(spark, connection)


@pytest.fixture(scope="module")
def known_town(spark_session: None, platform: Settings) -> Iterator[Town]:
    """A town for the tests that do not look at its rows."""
    with connect(platform, autocommit=True) as connection:
        yield lived_in(session(platform, "tests"), connection)


def verify(town: Town, view: str, certificate: str) -> CertificateCheck:
    certified = certificate_store.find_certificate(town.settings, certificate)
    return CertificateVerifier(town.context.spark, town.settings, town.types, town.view(view)).verify(certified)


def rows(town: Town, view: str, columns: str) -> list[tuple[Any, ...]]:
    names = sql.SQL(", ").join(map(sql.Identifier, columns.split()))
    query = sql.SQL("SELECT {} FROM {} ORDER BY 1, 2").format(names, sql.Identifier("views", view))
    return town.connection.execute(query).fetchall()


def die_in(town: Town, erasure: Erasure, step: Step, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command does the work of the step and dies. The repeated command is to continue the same erasure."""
    with dying_at(f"forget.{step.name.lower()}", folder, monkeypatch):
        Forgetting(town.context, town.connection, erasure, DOER).run()
    assert ledger.step_of(town.connection, erasure) == step - 1
    assert ledger.record(town.connection, wanted(town.settings, SUBJECTS)) == erasure


def test_nothing_is_left_of_a_person(town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = town.reconcile()
    assert {each.verdict for each in before.values()} == {"EQUAL"}
    require_preview(town)
    leave_more_traces(town)

    with dying_at("forget.recorded", tmp_path, monkeypatch):
        forget(town.settings, SUBJECTS, DOER)
    [erasure] = ledger.unfinished(town.connection)
    for step in (each for each in Step if Step.RECORDED < each < Step.COPIES):
        if step is Step.REWRITTEN:
            require_waits_for_commands(town, erasure, monkeypatch)
        die_in(town, erasure, step, tmp_path, monkeypatch)
    with monkeypatch.context() as impatient:
        impatient.setattr(outputs, "_RELAY_SECONDS", 0.1)
        with pytest.raises(NotForgotten, match="Start the services `relay`"):
            Forgetting(town.context, town.connection, erasure, DOER).run()
    with relayed(town.settings):
        die_in(town, erasure, Step.COPIES, tmp_path, monkeypatch)
        die_in(town, erasure, Step.PROVED, tmp_path, monkeypatch)
        Forgetting(town.context, town.connection, erasure, DOER).run()
        require_forgotten(town)

        for view, made in before.items():
            found = verify(town, view, str(made.certificate))
            assert (found.answer, "an erasure has covered" in found.reason) == ("SUPERSEDED", True), found
        assert verify(town, "sessions", "latest:sessions").answer == "EQUAL"  # the erasure has made a new one
        assert not run_audit(town.settings).faults
        require_receipt(town)

        forget_erasures(town.connection)  # as a backup from before the erasure
        for _ in range(2):
            assert answer("archive", "adopt")["unfinished_erasures"] == 1
        assert "1 erasures are unfinished" in truelog("status").stdout
        assert erasure in ledger.unfinished(town.connection)  # which the command performs again


def require_preview(town: Town) -> None:
    """A dry run counts, and writes nothing."""
    words = [word for field in FIELDS for word in ("--subject", f"{field}={PERSON}")]
    assert answer("forget", "--dry-run", *words) == {
        "dry_run": True,
        "records": ERASED,
        "views": list(VIEWS),
        "unclear": [],
    }
    assert answer("forget", "--dry-run", "--subject", "person_id=Ann Lee")["unclear"] == ["Ann Lee"]
    assert ledger.entries(town.connection) == []


def leave_more_traces(town: Town) -> None:
    """A replay, repairs of dropped versions, a view whose file was deleted, and lines that an import kept."""
    compiled = renamed(town.view("sessions"), "copy")
    copied = Wanted("sessions", "copy", timedelta(days=1), 1_000_000)
    make_from(town.context, compiled, copied, lambda *_: None, doer=DOER)
    a_view(town.connection, "gone", reads=["tweet"])
    is_gone(town.connection, "gone")
    for view in ("gone", "sessions", "dropped"):
        a_repair(town.connection, view, before={"text": TWEET})
    private_folder(kept_aside.folder(town.settings)).joinpath("access.log.malformed").write_text(f"{PERSON}\n{THIRD}\n")


def require_waits_for_commands(town: Town, erasure: Erasure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is rewritten before the reader of the log has found all accepted events that are in the log."""
    an_unread_event(town.connection, "tweet", PERSON.encode())
    with monkeypatch.context() as impatient:
        impatient.setattr(command_copies, "_READER_SECONDS", 0.1)
        with pytest.raises(NotForgotten, match="Start the services `commands`"):
            Forgetting(town.context, town.connection, erasure, DOER).run()
    assert ledger.step_of(town.connection, erasure) is Step.COUNTED
    forget_commands(town.connection)


def test_a_version_that_is_built_meanwhile_waits_for_the_next_run(
    known_town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_erasures(known_town.connection)
    erasure = an_erasure(known_town.connection, wanted(known_town.settings, SUBJECTS), Step.PARTIALS)

    def build_another(*_: object) -> list[ErasedView]:
        a_view(known_town.connection, "newer", reads=["tweet"])
        return []

    monkeypatch.setattr("truelog.forgetting.forget.each_alone", build_another)
    with pytest.raises(NotForgotten, match="version 1 of newer was built meanwhile"):
        Forgetting(known_town.context, known_town.connection, erasure, DOER).run()
    assert ("newer", 1) in made_versions(known_town.connection, erasure)
    forget_views(known_town.connection, "newer")
    forget_erasures(known_town.connection)


def test_an_erasure_that_cannot_finish_holds_back_only_certificates(known_town: Town) -> None:
    """The first one fails at once. The second one is tried, and is not proved while no view gets a certificate."""
    forget_erasures(known_town.connection)
    other = replace(wanted(known_town.settings, {("person_id", NEIGHBOUR)}), secret_check=bytes(32))
    an_erasure(known_town.connection, other, Step.COUNTED)
    erasure = an_erasure(known_town.connection, wanted(known_town.settings, SUBJECTS), Step.COPIES)
    with pytest.raises(NotForgotten, match=r"2 erasures .* another TRUELOG_ERASURE_SECRET.* got no certificate"):
        perform_all(known_town.context, known_town.connection, [other, erasure], DOER)
    assert ledger.step_of(known_town.connection, erasure) is Step.COPIES
    forget_erasures(known_town.connection)


def test_a_bucket_from_before_an_erasure_is_erased_again(known_town: Town) -> None:
    forget_erasures(known_town.connection)
    erasure = ledger.record(known_town.connection, wanted(known_town.settings, SUBJECTS))
    erasure_log.publish(known_town.settings, known_town.types, erasure)
    for step in list(Step)[1:]:
        ledger.finish(known_town.connection, erasure, step)
    add_published(known_town.settings, known_town.connection)  # the archive is as before the erasure
    assert ledger.step_of(known_town.connection, erasure) is Step.PUBLISHED
    forget_erasures(known_town.connection)


@pytest.mark.nightly  # the test of nothing that is left erases one version of each view
def test_a_version_that_readers_see_beside_the_declared_one_is_erased_too(town: Town) -> None:
    forget_erasures(town.connection)
    file = town.settings.views_folder / "sessions.py"
    source = file.read_text()
    view_versions.record_source(town.connection, "sessions", 3, source)
    file.write_text(source.replace("version=3,", "version=4,"))
    try:
        newer = new_town(town.context.spark, town.settings, town.connection)
        newer.stream()
        assert newer.view("sessions").view.version == 4
        before = [visitor for visitor, _ in rows(newer, "sessions", "visitor_id pages")]
        assert sorted({*before}) == [NEIGHBOUR, PERSON]
        erasure = ledger.record(newer.connection, wanted(newer.settings, SUBJECTS))
        with relayed(newer.settings):
            Forgetting(newer.context, newer.connection, erasure, DOER).run()
        for shown in ("sessions", "sessions_v3", "sessions_v4"):
            assert [visitor for visitor, _ in rows(newer, shown, "visitor_id pages")] == [NEIGHBOUR], shown
    finally:
        file.write_text(source)


def require_forgotten(town: Town) -> None:
    """Nothing of the person is left, and all of the others is."""
    assert kept_aside.folder(town.settings).joinpath("access.log.malformed").read_text() == f"{THIRD}\n"
    assert places_with(town.settings, town.connection, TRACES, ["erasure", RELAY_PLACES]) == []
    assert replays(town.connection) == []
    output = topic_of("home_timeline", town.view("home_timeline").view.version)
    published = table(town.settings, output)
    assert not [key for key, row in published.items() if any(each in key + row for each in TRACES)]
    assert [(row["reader_id"], row["tweet_id"]) for row in map(json.loads, published.values())] == [(THIRD, "t2")]
    assert rows(town, "home_timeline", "reader_id tweet_id") == [(THIRD, "t2")]
    assert [visitor for visitor, _ in rows(town, "sessions", "visitor_id pages")] == [NEIGHBOUR]
    [(views, visitors)] = rows(town, "page_audience", "views visitors")
    assert (int(views), round(visitors)) == (1, 1)  # the sketch is made again


def require_receipt(town: Town) -> None:
    [listed] = answer("erasures", "list")["erasures"]
    assert (listed["step"], listed["records"]) == ("proved", ERASED)
    receipt = answer("erasures", "show", listed["id"][:8])
    assert (receipt["finished"], receipt["kafka"].keys()) == (True, ERASED.keys())
    assert all(receipt["kafka"].values())
    assert not any(each in str(receipt) for each in TRACES)


@pytest.mark.parametrize("subject", ["person_id", "person_id=", "=5"])
def test_a_subject_is_a_field_and_a_value(platform: Settings, subject: str) -> None:
    assert truelog("forget", "--subject", subject).returncode == 2


def test_a_home_without_the_secret_forgets_nobody(platform: Settings) -> None:
    bare = platform.model_copy(update={"erasure_secret": SecretStr("")})
    with pytest.raises(NotSetUp, match="TRUELOG_ERASURE_SECRET"):
        wanted(bare, {("person_id", "42")})


def test_an_unknown_field_is_refused(platform: Settings) -> None:
    with pytest.raises(BadInput, match="no event type has the subject shoe_size"):
        wanted(platform, {("shoe_size", "42")})


@pytest.mark.nightly  # two processes with Spark; the test above does the same in this process
def test_a_killed_command_is_finished_by_its_repetition(town: Town) -> None:
    words = [word for field in FIELDS for word in ("--subject", f"{field}={THIRD}")]
    with relayed(town.settings):
        fired = town.settings.home / "fired"
        fault = {"TRUELOG_FAULT": "forget.rewritten:1:kill", "TRUELOG_FAULT_FIRED": str(fired)}
        assert truelog_process("forget", *words, **fault).returncode == -9
        assert fired.exists()
        *_, interrupted = answer("erasures", "list")["erasures"]
        assert interrupted["step"] == "counted"
        [done] = process_answer("erasures", "resume")["erasures"]
    assert (done["id"], done["finished"]) == (interrupted["id"], True)
    assert done["records"]["follow"] >= 1
    assert places_with(town.settings, town.connection, [THIRD], ["erasure", RELAY_PLACES]) == []
    assert answer("erasures", "resume") == {"erasures": []}
