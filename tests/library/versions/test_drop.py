"""A version is dropped only if readers do not see it and no file declares it."""

import pytest

from tests.builders.views import is_gone
from tests.command import answer, truelog
from tests.library.versions.two_versions import TwoVersions
from truelog.control import view_status, view_versions
from truelog.control.lease import take_lease
from truelog.maintenance import superseded
from truelog.maintenance.superseded import Version
from truelog.support.errors import NotReady
from truelog.support.settings import Settings
from truelog.tables.shown import readable
from truelog.versions.cut_over import back, cut_over
from truelog.versions.drop import drop
from truelog.versions.version_state import version_states


@pytest.fixture
def moved(versions: TwoVersions, s3: Settings) -> TwoVersions:
    """Readers have moved to version 2. The files of version 1 would be in the S3 bucket."""
    versions.make_ready()
    cut_over(versions.settings, versions.name, doer="test")
    return versions


def relations(versions: TwoVersions) -> list[str]:
    query = (
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'views'::regnamespace AND relname LIKE %s ORDER BY 1"
    )
    return [name for (name,) in versions.connection.execute(query, (f"{versions.name}%",)).fetchall()]


def test_a_version_that_is_seen_or_declared_stays(versions: TwoVersions) -> None:
    versions.make_ready()
    for version, why in (("1", "Readers of"), ("2", "declares version 2"), ("3", "no version 3")):
        refused = truelog("versions", "drop", versions.name, version, COLUMNS="400")
        assert (refused.returncode, why in refused.stderr) == (2, True), refused.stderr
    assert len(relations(versions)) == 6


def test_a_removed_view_can_be_dropped(moved: TwoVersions) -> None:
    readable.drop(moved.connection, readable.relations_of(moved.connection, moved.name))
    is_gone(moved.connection, moved.name)
    view_status.forget_others(moved.connection, moved.application, [])
    for version in (1, 2):
        drop(moved.settings, moved.name, version, doer="test")
    assert version_states(moved.settings, moved.connection, [moved.name]) == []


def test_a_version_is_dropped_after_its_stream_has_ended(moved: TwoVersions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truelog.versions.drop._STOP_SECONDS", 0.1)
    with pytest.raises(NotReady, match="still runs version 1"):
        drop(moved.settings, moved.name, 1, doer="test")
    # The stream ends, because readers can no longer return to the version.
    assert view_versions.beside(moved.settings, moved.connection, [moved.name]) == {(moved.name, 2)}
    view_status.forget_others(moved.connection, moved.application, [(moved.name, 2)])
    assert answer("versions", "drop", moved.name, "1") == {"view": moved.name, "dropped": 1}
    assert [each["version"] for each in answer("versions", "list", moved.name)["versions"]] == [2]
    assert moved.seen() == [("a", 2)]
    assert relations(moved) == [moved.name, f"{moved.name}_busy", f"{moved.name}_v2", f"{moved.name}_v2_busy"]


def test_a_version_stays_that_an_application_or_readers_use_again(
    moved: TwoVersions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep drops many versions, each some time after it has looked which of them are in use."""
    held = take_lease(moved.settings, moved.application)
    try:
        assert not superseded.drop_version(moved.settings, moved.connection, Version(moved.name, 1))
    finally:
        held.release()
    monkeypatch.setattr(superseded, "_drop_in_bucket", lambda *_: back(moved.settings, moved.name, doer="test"))
    assert not superseded.drop_version(moved.settings, moved.connection, Version(moved.name, 1))
    assert moved.seen() == [("a", 1)]
    assert len(version_states(moved.settings, moved.connection, [moved.name])) == 2
