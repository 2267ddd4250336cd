"""Tests of versions over HTTP, against the running api-server: what differs, and who may move readers."""

import json
from http.client import HTTPResponse

from runtime.airflow_client import Airflow
from tests.builders.erasures import lacks, restored_from_a_dump
from tests.library.versions.two_versions import TwoVersions
from tests.pages.fetch import fetch
from truelog.storage import audit_trail
from truelog.versions.share import share


def move(user: Airflow, act: str, versions: TwoVersions, **body: object) -> HTTPResponse:
    return fetch(user, "POST", f"versions/{act}", {"view": versions.name, **body}, **{"X-Truelog": "page"})


def stages(user: Airflow, versions: TwoVersions) -> dict[int, tuple[str, str]]:
    found = json.load(fetch(user, "GET", f"data/view?name={versions.name}"))["stages"]
    return {each["version"]: (each["stage"], each["obstacle"]) for each in found}


def test_on_call_users_move_readers_and_back_and_analysts_do_not(
    versions: TwoVersions, users: dict[str, Airflow]
) -> None:
    oncall = users["oncall"]
    versions.run_both()
    refused = move(oncall, "cut-over", versions, version=2)
    assert (refused.status, "not built yet" in json.load(refused)["detail"]) == (409, True)
    assert "not built yet" in stages(oncall, versions)[2][1]
    versions.make_ready()
    assert stages(oncall, versions) == {1: ("SERVING", ""), 2: ("READY", "")}
    assert [move(users[user], "cut-over", versions, version=2).status for user in ("analyst", "anonymous")] == [
        403,
        401,
    ]
    assert versions.seen() == [("a", 1)]

    assert move(oncall, "cut-over", versions, version=2).status == 200
    assert (versions.seen(), stages(oncall, versions)[1][0]) == ([("a", 2)], "FORMER")
    assert move(oncall, "cut-over", versions, version=2).status == 400  # they see it already
    assert move(users["analyst"], "back", versions, version=1).status == 403
    assert move(oncall, "back", versions, version=1).status == 200
    assert move(oncall, "back", versions, version=1).status == 400  # repeated after a lost answer
    assert versions.seen() == [("a", 1)]
    done = audit_trail.latest_operations(versions.connection, 2)
    assert {(each.doer, each.subject) for each in done} == {("oncall", versions.name)}


def test_the_page_says_how_many_readers_get_a_version_before_a_move(
    versions: TwoVersions, users: dict[str, Airflow]
) -> None:
    def shares() -> dict[int, int]:
        found = json.load(fetch(users["analyst"], "GET", f"data/view?name={versions.name}"))["stages"]
        return {each["version"]: each["share"] for each in found}

    versions.make_ready()
    assert shares() == {1: 0, 2: 0}
    share(versions.settings, versions.name, 2, 10, doer="test")
    assert shares() == {1: 0, 2: 10}
    assert move(users["oncall"], "cut-over", versions, version=2).status == 200
    assert shares() == {1: 0, 2: 0}


def test_another_site_moves_no_reader(versions: TwoVersions, users: dict[str, Airflow]) -> None:
    versions.make_ready()
    body = {"view": versions.name, "version": 2}
    assert fetch(users["oncall"], "POST", "versions/cut-over", body).status == 403
    assert versions.seen() == [("a", 1)]


def test_users_who_may_compare_see_which_rows_differ(versions: TwoVersions, users: dict[str, Airflow]) -> None:
    versions.make_ready()
    path = f"data/version-difference?view={versions.name}&one=1&other=2"
    assert fetch(users["analyst"], "GET", path).status == 403
    found = json.load(fetch(users["oncall"], "GET", path))
    assert (found["rows"], found["missing"], found["extra"], found["different"]) == ([1, 1], 0, 0, 1)
    assert found["sample"] == [{"one": {"url": "a", "views": "1"}, "other": {"url": "a", "views": "2"}}]
    assert fetch(users["oncall"], "GET", path.replace("other=2", "other=7")).status == 400


def test_no_page_shows_rows_while_a_restored_database_lacks_erasures(
    versions: TwoVersions, users: dict[str, Airflow]
) -> None:
    versions.make_ready()
    difference = f"data/version-difference?view={versions.name}&one=1&other=2"
    rows = [f"{each}name={versions.name}" for each in ("data/rows?", "export/rows.csv?", "export/rows.parquet?")]
    lacks(versions.connection, 0)
    assert [fetch(users["oncall"], "GET", path).status for path in (difference, *rows)] == [200] * 4
    restored_from_a_dump(versions.connection)
    for path in (difference, *rows):
        held = fetch(users["oncall"], "GET", path)
        assert (held.status, "`truelog archive adopt`" in json.load(held)["detail"]) == (503, True), path
    assert fetch(users["oncall"], "GET", f"data/view?name={versions.name}").status == 200, "the page says the reason"
    lacks(versions.connection, 0)
