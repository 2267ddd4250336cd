"""Readers move only to a version that is built, runs, is proved and lacks nothing, and they go back the same way."""

import psycopg
import pytest
from psycopg import sql

from tests.command import answer, truelog
from tests.library.versions.two_versions import TwoVersions
from truelog.control import view_status
from truelog.support.errors import NotReady
from truelog.versions.cut_over import cut_over

SOON = {"TRUELOG_CUT_OVER_CATCH_UP_SECONDS": "0.1"}


def refusal(versions: TwoVersions, *words: str, exit_code: int) -> str:
    """What the command says when it refuses. Readers then see what they saw before."""
    before = versions.seen()
    ended = truelog("versions", *words, versions.name, COLUMNS="400", **SOON)
    assert (ended.returncode, ended.stdout) == (exit_code, "")
    assert versions.seen() == before
    return ended.stderr


def stages(versions: TwoVersions) -> list[str]:
    return [each["stage"] for each in answer("versions", "list", versions.name)["versions"]]


def test_each_thing_that_is_missing_is_named_until_readers_can_move(versions: TwoVersions) -> None:
    versions.store(1, [("a", 1)])
    versions.store(2, [("a", 2)])
    assert stages(versions) == ["SERVING", "RESTING"]
    assert "no declared version that an application has deployed" in refusal(versions, "cut-over", exit_code=2)

    versions.run_both()
    assert stages(versions) == ["SERVING", "BUILDING"]
    assert "not built yet" in refusal(versions, "cut-over", exit_code=3)

    versions.reach(2, 3)
    assert stages(versions) == ["SERVING", "CATCHING_UP"]
    assert "never compared" in refusal(versions, "cut-over", exit_code=3)

    versions.prove(2, "DIFFERENT")
    assert "found it DIFFERENT" in refusal(versions, "cut-over", exit_code=3)

    versions.prove(2)
    assert "still lacks records" in refusal(versions, "cut-over", exit_code=3)

    versions.reach(2, 5)
    assert stages(versions) == ["SERVING", "READY"]
    assert answer("versions", "cut-over", versions.name) == {"view": versions.name, "version": 2, "former": 1}
    assert stages(versions) == ["FORMER", "SERVING"]
    assert versions.seen() == [("a", 2)]
    assert "see version 2 already" in refusal(versions, "cut-over", exit_code=2)
    operations = "SELECT kind, about FROM truelog.operation WHERE subject = %s"
    recorded = versions.connection.execute(operations, (versions.name,)).fetchall()
    assert recorded == [("cut_over", "from version 1 to version 2")]


def test_the_way_back_is_the_same_and_the_version_is_held(versions: TwoVersions) -> None:
    versions.make_ready()
    assert "No version" in refusal(versions, "back", exit_code=2)
    truelog("versions", "cut-over", versions.name)
    assert answer("versions", "back", versions.name) == {"view": versions.name, "version": 1, "former": 2}
    assert versions.seen() == [("a", 1)]
    held = [each["held"] for each in answer("versions", "list", versions.name)["versions"]]
    assert held == [False, True]
    assert "(held)" in truelog("versions", "list", versions.name, COLUMNS="400").stdout

    truelog("versions", "cut-over", versions.name)
    assert not any(each["held"] for each in answer("versions", "list", versions.name)["versions"])
    view_status.record_beside(
        versions.connection, versions.application, versions.name, 1, "its topic was created again"
    )
    assert "stalled: its topic was created again" in refusal(versions, "back", exit_code=3)
    view_status.record_beside(versions.connection, versions.application, versions.name, 1)
    versions.prove(1, "DIFFERENT")
    assert "known to be wrong" in refusal(versions, "back", exit_code=3)


def test_a_reader_that_holds_the_view_is_waited_for(versions: TwoVersions) -> None:
    versions.make_ready()
    hasty = versions.settings.model_copy(update={"cut_over_catch_up_seconds": 0.1})
    with psycopg.connect(**versions.settings.database()) as reader:
        reader.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier("views", versions.name)))
        with pytest.raises(NotReady, match="A query holds"):
            cut_over(hasty, versions.name, doer="test")
    assert versions.seen() == [("a", 1)]
    cut_over(hasty, versions.name, doer="test")
    assert versions.seen() == [("a", 2)]


def test_what_the_version_presents_moves_with_it(versions: TwoVersions) -> None:
    versions.make_ready()
    versions.store(2, [("a", 9)])
    busy = sql.SQL("SELECT url FROM {}").format(sql.Identifier("views", f"{versions.name}_busy"))
    assert versions.connection.execute(busy).fetchall() == []
    cut_over(versions.settings, versions.name, doer="test")
    assert versions.connection.execute(busy).fetchall() == [("a",)]
