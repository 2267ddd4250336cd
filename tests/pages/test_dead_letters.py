"""Tests of the dead letters page: the reasons, the list with its filters, and the command that sends events again."""

import json
from typing import Any

import pytest

from pages import dead_letter_report
from pages.dead_letter_report import LetterQuery
from runtime.airflow_client import Airflow
from tests.builders.log import a_replay
from tests.pages.conftest import BAD
from tests.pages.fetch import fetch
from tests.pages.plausible import HOSTILE
from tests.pages.rejected_click import reject_click
from truelog.erasure.dead_letter import DEAD_LETTER
from truelog.log import kafka_reader, topics
from truelog.storage.database import connect
from truelog.support.errors import BadInput
from truelog.support.settings import Settings


def test_reasons_are_counted_and_letters_are_filtered_sorted_and_paged(
    rejected: Settings, pages: Settings, users: dict[str, Airflow]
) -> None:
    def ask(query: str) -> Any:
        return json.load(fetch(users["analyst"], "GET", f"data/dead-letters?{query}"))

    found = ask("")
    assert (found["total"], found["types"], found["more_reasons"]) == (6, [HOSTILE[0], "no", "page_view"], 0)
    assert found["reasons"][0]["letters"] == 3
    assert found["reasons"][0]["event_type"] == "page_view"
    assert [each["offset"] for each in found["letters"]] == [1, 2, 3, 4, 5, 6]
    assert found["letters"][5]["bytes"] == len(BAD[5])
    assert "raw" not in found["letters"][0]
    assert ask("hours=100")["total"] == 7
    one = ask("type=page_view&order=received_at&descending=false&limit=2&skip=1")
    assert (one["total"], [each["offset"] for each in one["letters"]]) == (3, [2, 1])
    assert one["replay"] == "truelog dead-letters replay --since 24h --type page_view"
    assert {each["event_type"] for each in one["reasons"]} == {"page_view"}
    assert sum(each["letters"] for each in one["reasons"]) == 3
    assert (sum(found["course"]["letters"]), sum(one["course"]["letters"])) == (6, 3)
    assert found["course"]["step"] == 3600
    text = ask("text=NOT%20AN%20EVENT%20TYPE&order=event_type")
    assert [each["event_type"] for each in text["letters"]] == ["no", HOSTILE[0]]
    assert text["replay"].endswith("--reason 'NOT AN EVENT TYPE'")
    assert fetch(users["analyst"], "GET", "data/dead-letters?order=raw").status == 422


def test_a_letter_that_was_sent_again_names_its_topic(rejected: Settings) -> None:
    with connect(rejected, autocommit=True) as connection:
        [found] = topics.topic_ids(rejected, [DEAD_LETTER]).values()
        a_replay(connection, found, 3, target="page_view")
        try:
            report = dead_letter_report.dead_letter_report(rejected, LetterQuery(24))
        finally:
            connection.execute("DELETE FROM truelog.replay")
    assert [each.sent for each in report.letters] == ["", "", "page_view", "", "", ""]


def test_too_many_letters_are_refused(
    rejected: Settings, pages: Settings, users: dict[str, Airflow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_report, "MOST_READ", 2)
    with pytest.raises(BadInput, match="this time range has about 8 dead letters"):
        dead_letter_report.dead_letter_report(rejected, LetterQuery(24))


def test_more_bytes_than_a_page_can_hold_are_refused(rejected: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_report, "MOST_BYTES", max(map(len, BAD)))
    with pytest.raises(BadInput, match="this time range has more than 0 MB of dead letters"):
        dead_letter_report.dead_letter_report(rejected, LetterQuery(24))


def test_a_replay_is_counted_first_and_sends_each_letter_once(
    rejected: Settings, pages: Settings, users: dict[str, Airflow]
) -> None:
    reject_click(rejected)

    def ask(user: str, **given: Any) -> Any:
        body = {"chosen": {"type": "click"}, **given}
        return fetch(users[user], "POST", "dead-letters/replay", body, **{"X-Truelog": "page"})

    assert ask("analyst", dry_run=True).status == 403
    counted = json.load(ask("oncall", dry_run=True))
    assert (counted["sent"], counted["already_sent"]) == (1, 0)
    assert sent(rejected) == 0
    assert json.load(ask("oncall", dry_run=False))["sent"] == 1
    again = json.load(ask("oncall", dry_run=False))
    assert (again["sent"], again["already_sent"]) == (0, 1)
    assert sent(rejected) == 1
    one = json.load(ask("oncall", dry_run=True, one={"partition": 0, "offset": 1}))
    assert (one["sent"], sum(one["invalid"].values())) == (0, 1)
    assert ask("oncall", dry_run=True, one={"partition": 0, "offset": 99}).status == 404


def sent(settings: Settings) -> int:
    """The events of the topic."""
    ends = topics.end_offsets(settings, ["click"])
    return sum(
        len(list(kafka_reader.messages(settings, topic, partition, 0, ends.at(topic, partition))))
        for topic, partition in ends.partitions()
    )
