"""Activity with the profile as it was then: a late change corrects the tweets after it."""

from typing import Any

from tests.beds.lab import Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, sent
from tests.views.generated import logs_and_rows
from tests.views.people import named
from truelog import View


def tweeted(event_id: str, time: str, author: str = "ann") -> Sent:
    fields = {"tweet_id": f"t{event_id}", "author_id": author, "verb": "posted", "text": "hello"}
    return sent("tweet", event_id=event_id, occurred_at=at(time), **fields)


def names(rows: list[Row]) -> list[tuple[str, int, str | None]]:
    return [(row["event_id"], row["profile_version"], row["name"]) for row in rows]


@example(
    [
        *(tweeted("1", "09:00:00"), named("ann", "Ann", "10:00:00"), tweeted("2", "10:30:00")),
        *(named("ann", "Anna", "11:00:00"), tweeted("3", "11:30:00"), named("bob", "Bob", "08:00:00")),
    ]
)
def test_a_tweet_has_the_name_that_its_author_had_then(rows: Rows) -> None:
    assert names(rows) == [("1", 0, None), ("2", 1, "Ann"), ("3", 2, "Anna")]


@example(
    [
        *(named("ann", "Ann", "10:00:00"), tweeted("1", "10:10:00"), tweeted("2", "10:30:00")),
        *(named("ann", "Anna", "11:00:00"), tweeted("3", "11:30:00"), named("ann", "Late", "10:20:00")),
    ]
)
def test_a_late_change_corrects_the_tweets_up_to_the_next_change(rows: Rows) -> None:
    assert names(rows) == [("1", 1, "Ann"), ("2", 2, "Late"), ("3", 3, "Anna")]


@example([*[named("ann", "Ann", "09:00:00")] * 2, tweeted("1", "10:00:00"), tweeted("1", "10:00:00")])
def test_an_event_that_was_sent_twice_counts_once(rows: Rows) -> None:
    assert names(rows) == [("1", 1, "Ann")]


@example([named("ann", "Ann", "10:00:00"), named("ann", "Ann", "10:05:00", "closed"), tweeted("1", "10:10:00")])
def test_a_closed_profile_has_no_name(relations: Relations) -> None:
    [row] = relations["per_name"]
    assert (row["profile_version"], row["name"], row["tweets"]) == (2, None, 1)


def test_generated_logs_give_the_names_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    with_name = 0
    for events, found in logs_and_rows(lab, name, view):
        rows = {(row["person_id"], row["event_id"]): (row["profile_version"], row["name"]) for row in found}
        assert rows == naive_names(events)
        with_name += sum(name is not None for _, name in rows.values())
    assert with_name > 3, "the logs hold too few tweets of people with names"


def naive_names(events: list[Row]) -> dict[tuple[str, str], tuple[int, str | None]]:
    order = ("event_time", "topic", "partition", "offset")
    versions: dict[str, int] = {}
    present: dict[str, str | None] = {}
    found: dict[Any, tuple[int, str | None]] = {}
    seen = set[tuple[str, str, str]]()
    for event in sorted(events, key=lambda each: tuple(each[column] for column in order)):
        identity = event["topic"], event.get("person_id") or event["author_id"], event["event_id"]
        if identity in seen or (event["topic"] == "tweet" and event["verb"] != "posted"):
            continue
        seen.add(identity)
        if event["topic"] == "profile":
            person = event["person_id"]
            versions[person] = versions.get(person, 0) + 1
            present[person] = event["name"] if event["verb"] == "changed" else None
        else:
            person = event["author_id"]
            found.setdefault((person, event["event_id"]), (versions.get(person, 0), present.get(person)))
    return found
