"""Trends: how often a word is searched for and a URL is clicked in an hour, and in the hour before.

A client that gets no answer sends its event again, with the same id. The event then counts once.
"""

from collections import Counter
from typing import Any

from tests.beds.lab import Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, sent
from tests.views.generated import bounded, logs_and_rows, without_copies
from truelog import View
from truelog.text.words import words


def searched(event_id: str, query: str, time: str = "10:00:00") -> Sent:
    return sent("search", event_id=event_id, visitor_id="ann", query=query, results=[], occurred_at=at(time))


def clicked(event_id: str, url: str, time: str = "10:00:00") -> Sent:
    return sent("click", event_id=event_id, visitor_id="ann", search_id="s", url=url, occurred_at=at(time))


def terms(rows: list[Row]) -> dict[tuple[str, str], int]:
    return {(row["kind"], row["term"]): row["number"] for row in rows}


@example([searched("1", "Red lamp"), searched("2", "  lamp\t LAMP "), searched("3", " ")])
def test_each_word_of_a_query_counts_once(rows: Rows) -> None:
    assert terms(rows) == {("word", "red"): 1, ("word", "lamp"): 2}


@example(
    [
        searched("1", "\u00e9cole"),
        searched("2", "e\u0301cole"),
        searched("3", "Kafka\u00a0ÉCOLE!"),
        searched("4", "東京都"),
        searched("5", "\u0902"),
    ]
)
def test_words_are_found_as_in_all_searches(rows: Rows) -> None:
    found = {"ecole": 3, "kafka": 1, "東京": 1, "京都": 1, "\u0902": 1}
    assert terms(rows) == {("word", word): number for word, number in found.items()}


def test_searches_of_an_older_event_version_keep_their_words(lab: Lab, view: View) -> None:
    """They have no `query_words`: they are judged by the version that was in force at their offsets.

    In every release of Java, letters are those of Unicode 14, and not those of Unicode 15.
    """
    given = [("Red  LAMP lamp - !", None), ("!! ? \U0001f600\ufe0f", None), ("CafÉ, lamp", "cafe lamp")]
    given += [("\u300c \uff2b \u2014 \u2c5f \U0001e4d0", None)]
    rows = [(at("10:00:00"), *each) for each in given]
    search = lab.spark.createDataFrame(rows, "event_time timestamp, query string, query_words string")
    click = lab.spark.createDataFrame([], "event_time timestamp, url string")
    found = [row["term"] for row in view.transform(search, click).collect()]
    assert sorted(found) == ["cafe", "lamp", "lamp", "red", "\u2c5f", "\uff4b"]


@example([searched("1", "lamp"), clicked("2", "lamp"), clicked("3", "lamp")])
def test_words_and_urls_are_kept_apart(rows: Rows) -> None:
    assert terms(rows) == {("word", "lamp"): 1, ("url", "lamp"): 2}


AGAIN = searched("1", "lamp", "11:00:00")


@example([searched("1", "lamp"), AGAIN, AGAIN, searched("2", "lamp")], in_order=True)
def test_a_search_that_a_client_sends_again_counts_once(rows: Rows) -> None:
    """A request for the search failed after Kafka had stored it. The client corrected its clock before the retry."""
    assert terms(rows) == {("word", "lamp"): 2}


@example([searched("1", "lamp"), clicked("1", "lamp")], in_order=True)
def test_events_of_different_types_may_have_the_same_id(rows: Rows) -> None:
    assert terms(rows) == {("word", "lamp"): 1, ("url", "lamp"): 1}


@example([searched(time, "lamp", time) for time in ("09:10:00", "10:00:00", "10:59:59", "12:00:00")])
def test_an_hour_is_compared_with_the_hour_before(relations: Relations) -> None:
    assert [(row["hour"], row["number"], row["before"], row["rise"]) for row in relations["rising"]] == [
        (at("09:00:00"), 1, 0, 1),
        (at("10:00:00"), 2, 1, 1),
        (at("12:00:00"), 1, 0, 1),
    ]


def test_generated_logs_give_the_numbers_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    for events, found in logs_and_rows(lab, name, view):
        expected = Counter[Any]()
        for event in without_copies(view, events):
            hour = event["event_time"].replace(minute=0, second=0, microsecond=0)
            terms = {*words(event["query"])} if event["topic"] == "search" else {event["url"]}
            kind = "word" if event["topic"] == "search" else "url"
            expected.update((hour, kind, bounded(term, 2)) for term in terms)
        assert {(row["hour"], row["kind"], row["term"]): row["number"] for row in found} == expected
