"""Tests of the data about rules over HTTP, against the running api-server."""

import json

import pytest

from runtime.airflow_client import Airflow
from tests.pages.fetch import fetch
from tests.pages.found_by_rules import RULE, SEARCH, matches_that_wait
from truelog.storage.database import connect
from truelog.support.settings import Settings


def test_the_list_has_the_newest_version_of_each_rule_and_what_all_versions_found(
    ruled: Settings, users: dict[str, Airflow]
) -> None:
    answer = json.load(fetch(users["analyst"], "GET", "data/rules"))
    [rule] = answer["patterns"]
    assert (rule["name"], rule["version"], rule["ended"], rule["found"]) == (
        RULE,
        2,
        None,
        {"found": 9, "retracted": 1},
    )
    assert [(each["name"], each["query"], each["found"]) for each in answer["searches"]] == [
        ("nothing", "zebra", {"found": 0}),
        (SEARCH, "power outage", {"found": 3}),
    ]
    assert (answer["totals"], answer["missing"]) == ({"patterns": 1, "searches": 2}, [])
    filtered = json.load(fetch(users["analyst"], "GET", "data/rules?match=OUT"))
    assert (filtered["totals"], len(filtered["searches"])) == ({"patterns": 0, "searches": 1}, 1)


def test_a_rule_has_its_text_versions_and_rows_over_time(ruled: Settings, users: dict[str, Airflow]) -> None:
    answer = json.load(fetch(users["analyst"], "GET", f"data/pattern?name={RULE}&hours=2"))
    assert "WITHIN 5 minutes" in answer["text"]
    assert [each["in_force"] for each in answer["versions"]] == [False, True]
    course = answer["course"]
    assert {outcome: sum(values) for outcome, values in course["found"].items()} == {"found": 3, "retracted": 1}
    assert {len(course["at"])} == {len(values) for values in course["found"].values()}
    assert [each["match_id"] for each in answer["found"][:2]] == ["match0", "match1"]
    assert answer["found"][0]["events"][1]["step"] == "succeeded"
    assert answer["notifications"] == []


def test_matches_that_wait_are_counted_apart_and_hide_no_other(ruled: Settings, users: dict[str, Airflow]) -> None:
    with connect(ruled, autocommit=True) as connection, matches_that_wait(connection, 60):
        [listed] = json.load(fetch(users["analyst"], "GET", "data/rules"))["patterns"]
        answer = json.load(fetch(users["analyst"], "GET", f"data/pattern?name={RULE}&hours=2"))
    assert listed["found"] == {"found": 9, "retracted": 1, "waiting": 60}
    assert {outcome: sum(values) for outcome, values in answer["course"]["found"].items()} == {
        "found": 3,
        "retracted": 1,
        "waiting": 60,
    }
    shown = [each["outcome"] for each in answer["found"]]
    assert (sorted(shown[:10]), {*shown[10:]}) == (["found"] * 9 + ["retracted"], {"waiting"})


def test_a_search_has_its_hits(ruled: Settings, users: dict[str, Airflow]) -> None:
    answer = json.load(fetch(users["analyst"], "GET", f"data/search?name={SEARCH}&hours=1"))
    assert sum(answer["course"]["found"]["found"]) == 3
    assert len(answer["found"]) == 3
    assert (answer["text"], [each["hits"] for each in answer["versions"]]) == ("power outage", [3])


@pytest.mark.parametrize("path", ["data/pattern?name=no", "data/search?name=no"])
def test_an_unknown_rule_returns_404(ruled: Settings, users: dict[str, Airflow], path: str) -> None:
    assert fetch(users["analyst"], "GET", path).status == 404
