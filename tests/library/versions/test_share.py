"""A share of the API's readers gets a version that is built, proved and level, until all move or the share ends."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.builders.views import a_view, is_gone
from tests.command import answer, truelog
from tests.library.versions.two_versions import TwoVersions
from truelog.control import removed_views, view_versions
from truelog.maintenance.superseded import Version, drop_version
from truelog.support.errors import BadInput, NotReady
from truelog.support.settings import Settings
from truelog.tables.shown import readable
from truelog.versions.cut_over import back, cut_over
from truelog.versions.share import share

SOON = {"TRUELOG_CUT_OVER_CATCH_UP_SECONDS": "0.1"}


def shares(versions: TwoVersions) -> dict[int, int]:
    return {each["version"]: each["share"] for each in answer("versions", "list", versions.name)["versions"]}


def operations(versions: TwoVersions) -> list[tuple[object, ...]]:
    query = "SELECT kind, about FROM truelog.operation WHERE subject = %s ORDER BY id"
    return versions.connection.execute(query, (versions.name,)).fetchall()


def refusal(versions: TwoVersions, version: int, percent: int) -> tuple[int, str]:
    words = "versions", "share", versions.name, str(version), str(percent)
    before = shares(versions)
    ended = truelog(*words, COLUMNS="400", **SOON)
    assert (ended.stdout, shares(versions)) == ("", before)
    return ended.returncode, ended.stderr


def test_the_command_gives_changes_and_takes_back_a_share(versions: TwoVersions) -> None:
    versions.make_ready()
    for percent in (10, 50, 20, 0, 0):
        made = answer("versions", "share", versions.name, "2", str(percent))
        assert made == {"view": versions.name, "version": 2, "percent": percent}
        assert shares(versions) == {1: 0, 2: percent}
    said = [f"{percent} % of the API's readers get version 2" for percent in (10, 50, 20, 0)]
    assert operations(versions) == [("share", each) for each in said]
    told = truelog("versions", "share", versions.name, "2", "7").stdout
    assert " ".join(told.split()) == f"7 % of the API's readers of {versions.name} get version 2"
    assert " 7 % " in truelog("versions", "list", versions.name, COLUMNS="400").stdout
    assert versions.seen() == [("a", 1)], "SQL readers see what they saw before"


def test_a_version_that_is_not_proved_or_lacks_records_gets_no_reader(versions: TwoVersions) -> None:
    versions.store(1, [("a", 1)])
    versions.run_both()
    steps: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: None, "not built yet"),
        (lambda: versions.reach(2, 3), "never compared"),
        (lambda: versions.prove(2, "DIFFERENT"), "found it DIFFERENT"),
        (lambda: versions.prove(2), "still lacks records"),
    )
    for reach, missing in steps:
        reach()
        code, said = refusal(versions, 2, 10)
        assert (code, missing in said) == (3, True), said
    assert "see version 1 already" in refusal(versions, 1, 10)[1]
    assert "no version 3" in refusal(versions, 3, 10)[1]
    assert refusal(versions, 2, 101)[0] == 2
    assert operations(versions) == []
    with pytest.raises(BadInput, match="from 0 to 100, not -1"):
        share(versions.settings, versions.name, 2, -1, doer="test")


def test_more_readers_need_a_proof_again_and_fewer_do_not(versions: TwoVersions) -> None:
    versions.make_ready()
    share(versions.settings, versions.name, 2, 10, doer="test")
    versions.prove(2, "DIFFERENT")
    with pytest.raises(NotReady, match="found it DIFFERENT"):
        share(versions.settings, versions.name, 2, 11, doer="test")
    assert share(versions.settings, versions.name, 2, 9, doer="test").percent == 9
    assert share(versions.settings, versions.name, 2, 0, doer="test").percent == 0
    assert shares(versions) == {1: 0, 2: 0}


def test_a_move_of_all_readers_ends_the_share_and_says_so(versions: TwoVersions) -> None:
    versions.make_ready()
    share(versions.settings, versions.name, 2, 10, doer="test")
    cut_over(versions.settings, versions.name, doer="test")
    assert shares(versions) == {1: 0, 2: 0}
    said = "from version 1 to version 2; before, 10 % of the API's readers got version 2"
    assert operations(versions)[-1] == ("cut_over", said)
    versions.prove(1)
    share(versions.settings, versions.name, 1, 30, doer="test")
    back(versions.settings, versions.name, doer="test")
    assert shares(versions) == {1: 0, 2: 0}
    versions.prove(2)
    share(versions.settings, versions.name, 2, 10, doer="test")
    readable.show(versions.connection, versions.name, 1)
    assert shares(versions) == {1: 0, 2: 10}, "its statements were replaced, and no reader has moved"


def test_a_version_with_readers_is_not_dropped_and_its_stream_goes_on(versions: TwoVersions, s3: Settings) -> None:
    versions.make_ready()
    cut_over(versions.settings, versions.name, doer="test")
    versions.prove(1)
    share(versions.settings, versions.name, 1, 10, doer="test")
    refused = truelog("versions", "drop", versions.name, "1", COLUMNS="400")
    assert (refused.returncode, "Take the share back first" in refused.stderr) == (2, True), refused.stderr
    hasty = versions.settings.model_copy(update={"former_keep_seconds": 0.0})
    both = {(versions.name, 1), (versions.name, 2)}
    assert view_versions.beside(hasty, versions.connection, [versions.name]) == both
    assert drop_version(versions.settings, versions.connection, Version(versions.name, 1)), "as upkeep does"
    assert shares(versions) == {2: 0}


def test_the_share_of_a_removed_view_ends_with_its_relations(versions: TwoVersions) -> None:
    """If the file comes back, all readers see one version."""
    versions.make_ready()
    share(versions.settings, versions.name, 2, 10, doer="test")
    is_gone(versions.connection, versions.name, ago=timedelta(hours=1))
    assert removed_views._hide(versions.settings, versions.name)
    assert shares(versions) == {1: 0, 2: 0}


def test_only_one_version_of_a_view_has_a_share(versions: TwoVersions) -> None:
    versions.make_ready()
    share(versions.settings, versions.name, 2, 10, doer="test")
    a_view(versions.connection, versions.name, 3)
    with pytest.raises(BadInput, match=r"10 % of the API's readers of .* get version 2"):
        share(versions.settings, versions.name, 3, 10, doer="test")
