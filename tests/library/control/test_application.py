"""Application diagnosis, as a table of cases, and release detection."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from truelog.control import application
from truelog.control.application import (
    ApplicationStatus,
    Diagnosis,
    InactivityLimits,
    diagnose_inactivity,
    diagnose_status,
)
from truelog.support.errors import NotSetUp
from truelog.support.settings import PROJECT, Settings

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
LIMITS = InactivityLimits(start=timedelta(seconds=600), silence=timedelta(seconds=120))


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


HEALTHY = ApplicationStatus(
    "stream",
    code_wanted="a",
    code_running="a",
    epoch=7,
    pid=1,
    host="here",
    taken_at=ago(3600),
    batch_at=ago(1),
    alive=True,
)

CASES = {
    "its last batch was a second ago": (HEALTHY, None),
    "its last batch was exactly at the limit": (replace(HEALTHY, batch_at=ago(120)), None),
    "2: a command holds its lease": (replace(HEALTHY, desired="stopped", code_running="command"), None),
    "2 before 5: a command holds its lease for long": (
        replace(HEALTHY, batch_at=ago(999), code_running="command"),
        None,
    ),
    "3: a command has released its lease": (replace(HEALTHY, alive=False, code_running="command"), Diagnosis.DOWN),
    "1: it runs but should not": (replace(HEALTHY, desired="stopped"), Diagnosis.STOP),
    "1 before 5: it hangs and should not run": (
        replace(HEALTHY, desired="stopped", batch_at=ago(999)),
        Diagnosis.STOP,
    ),
    "2: it should not run and does not": (replace(HEALTHY, desired="stopped", alive=False), None),
    "2: it should not run and never ran": (ApplicationStatus("stream", desired="stopped"), None),
    "3: its lock is free, although its last batch is recent": (replace(HEALTHY, alive=False), Diagnosis.DOWN),
    "3: it never ran": (ApplicationStatus("stream"), Diagnosis.DOWN),
    "3 before 6: a dead process runs no code": (replace(HEALTHY, alive=False, code_wanted="b"), Diagnosis.DOWN),
    "3: its lock is taken, but it has no lease": (ApplicationStatus("stream", alive=True), Diagnosis.DOWN),
    "4: a restart was requested": (replace(HEALTHY, wish="ann"), Diagnosis.RESTART_PENDING),
    "3 before 4: a dead process is started anyway": (replace(HEALTHY, alive=False, wish="ann"), Diagnosis.DOWN),
    "4 before 5: a requested restart does not wait for the limit": (
        replace(HEALTHY, batch_at=ago(999), wish="ann"),
        Diagnosis.RESTART_PENDING,
    ),
    "5: its last batch is too long ago": (replace(HEALTHY, batch_at=ago(121)), Diagnosis.HUNG),
    "5: it is starting, within the limit": (replace(HEALTHY, taken_at=ago(599), batch_at=None), None),
    "5: it started long ago and has made no batch": (
        replace(HEALTHY, taken_at=ago(601), batch_at=None),
        Diagnosis.HUNG,
    ),
    "5: the database's clock is ahead of ours": (replace(HEALTHY, batch_at=NOW + timedelta(seconds=5)), None),
    "5: it has the whole time again after it has taken its lease again": (
        replace(HEALTHY, batch_at=ago(140), taken_at=ago(120)),
        None,
    ),
    "5: it has been silent since it took its lease again": (
        replace(HEALTHY, batch_at=ago(260), taken_at=ago(121)),
        Diagnosis.HUNG,
    ),
    "6: it does not run the wanted code": (replace(HEALTHY, code_wanted="b"), Diagnosis.CHANGED),
    "6: it does not run the wanted code, and has made no batch": (
        replace(HEALTHY, code_wanted="b", batch_at=None, taken_at=ago(5)),
        Diagnosis.CHANGED,
    ),
    "6: its running code is unknown": (replace(HEALTHY, code_running=None), None),
    "6: its wanted code is unknown": (replace(HEALTHY, code_wanted=None), None),
}


@pytest.mark.parametrize("case", CASES)
def test_diagnosis_of_a_status(case: str) -> None:
    status, expected = CASES[case]
    assert diagnose_status(status, LIMITS, NOW) == expected


SILENT, STARTED = replace(HEALTHY, batch_at=ago(3000)), replace(HEALTHY, taken_at=ago(3000), batch_at=None)

SILENCES = {
    "1: no input since its last batch": (SILENT, None, Diagnosis.NO_INPUT),
    "1: no known input since it started": (STARTED, None, Diagnosis.NO_INPUT),
    "2: the ticks have just resumed": (SILENT, ago(1), None),
    "2: the limit of the first batch counts from the first tick": (STARTED, ago(599), None),
    "3: ticks or events arrived, and no batch followed": (SILENT, ago(121), Diagnosis.HUNG),
    "3: ticks arrived, and it never made a batch": (STARTED, ago(601), Diagnosis.HUNG),
}


@pytest.mark.parametrize("case", SILENCES)
def test_diagnosis_of_silence(case: str) -> None:
    status, input_since, expected = SILENCES[case]
    assert diagnose_status(status, LIMITS, NOW) is Diagnosis.HUNG
    assert diagnose_inactivity(status, LIMITS, NOW, input_since) == expected


def settings(home: Path, **values: object) -> Settings:
    required = {
        "kafka_bootstrap": "127.0.0.1:1",
        "kafka_password": "",
        "s3_endpoint": "http://127.0.0.1:1",
        "s3_access_key": "",
        "s3_secret_key": "",
        "database_port": 1,
        "database_password": "",
    }
    return Settings(home=home, **required | values)


def test_applications_are_the_archive_and_those_with_views(tmp_path: Path) -> None:
    assert application.application_names(settings(tmp_path)) == ["archive", "stream"]
    moved = settings(tmp_path, applications={"slow": "apart", "slower": "apart"})
    assert application.application_names(moved) == ["archive", "apart", "stream"]
    assert [application.application_of_view(moved, view) for view in ("slow", "page_views")] == ["apart", "stream"]
    with pytest.raises(NotSetUp, match="another name"):
        application.application_names(settings(tmp_path, applications={"slow": "archive"}))


def test_the_silence_limit_of_the_archive_includes_its_trigger_interval(tmp_path: Path) -> None:
    given = settings(tmp_path, silence_seconds=10, archive_trigger_seconds=30, tick_seconds=1)
    limits = {name: application.silence_limits(given, name).silence.total_seconds() for name in ("archive", "stream")}
    assert limits == {"archive": 40, "stream": 11}


def test_a_changed_view_and_a_moved_view_change_the_digest(tmp_path: Path) -> None:
    view = tmp_path / "one.py"
    view.write_text("VIEW = 1")
    before = application.source_digest(settings(tmp_path, views_folder=tmp_path))
    assert application.source_digest(settings(tmp_path, views_folder=tmp_path)) == before
    moved = application.source_digest(settings(tmp_path, views_folder=tmp_path, applications={"one": "apart"}))
    view.write_text("VIEW = 2")
    changed = application.source_digest(settings(tmp_path, views_folder=tmp_path))
    (tmp_path / "two.py").write_text("")
    more = application.source_digest(settings(tmp_path, views_folder=tmp_path))
    assert len({before, moved, changed, more}) == 4


def test_a_change_in_any_package_is_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, library = settings(tmp_path, views_folder=tmp_path), tmp_path / "include" / "truelog"
    shutil.copytree(PROJECT / "include" / "truelog", library, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(application, "PROJECT", tmp_path)
    for beside in ("rules", "searches"):  # view files import from them
        shutil.copytree(PROJECT / "include" / beside, tmp_path / "include" / beside)
    packages, digests = sorted(library.rglob("__init__.py")), [application.source_digest(given)]
    for init in packages:
        (init.parent / "fresh.py").write_text("")
        digests.append(application.source_digest(given))
        init.write_text(init.read_text() + "# changed\n")
        digests.append(application.source_digest(given))
    for beside in ("rules", "searches"):
        sources = tmp_path / "include" / beside / "sources.py"
        sources.write_text(sources.read_text() + "# changed\n")
        digests.append(application.source_digest(given))
    assert len(packages) > 20
    assert len(set(digests)) == len(digests)
