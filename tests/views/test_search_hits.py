"""Search hits: what stored searches find, in batch, as a stream, and shuffled."""

from typing import Any

from tests.views.examples import Rows, Sent, at, example, sent


def search(name: str, query: str, event_type: str = "post", begins: str = "{}") -> Sent:
    return sent("stored_search", search=name, verb="set", event_type=event_type, query=query, begins=begins)


def post(text: str | None, time: str = "10:00:00", verb: str = "posted") -> Sent:
    return sent("post", post_id="x1", author_id="ann", verb=verb, text=text, occurred_at=at(time))


def of(rows: Rows, *searches: str) -> list[tuple[Any, ...]]:
    return sorted((row["search"], row["snippet"]) for row in rows if row["search"] in searches)


PHRASE = search("phrase", '"kafka is down"')


@example([PHRASE, post("Oh no: Kafka  is DOWN again"), post("is kafka down?"), post("kafka was down")])
def test_a_phrase_finds_its_words_in_their_order(rows: Rows) -> None:
    assert of(rows, "phrase") == [("phrase", "Oh no: Kafka  is DOWN again")]
    [row] = [row for row in rows if row["search"] == "phrase"]
    assert (row["event_type"], row["event_time"]) == ("post", at("10:00:00"))
    assert row["document"].startswith("post:")


@example([search("accents", "crème BRULEE*"), post("Zwei Cre\u0300me brûlées, bitte"), post("creme")])
def test_case_and_accents_do_not_matter(rows: Rows) -> None:
    assert of(rows, "accents") == [("accents", "Zwei Crème brûlées, bitte")]


@example([search("either", "(cats OR dogs) NOT birds"), post("dogs"), post("cats and birds"), post("birds")])
def test_alternatives_and_what_must_not_be_there(rows: Rows) -> None:
    assert of(rows, "either") == [("either", "dogs")]


COMMENT = sent("comment", comment_id="c1", post_id="x1", author_id="bob", verb="posted", text="orange")


@example([search("type", "orange", "comment"), post("orange"), COMMENT])
def test_a_search_has_one_event_type(rows: Rows) -> None:
    assert [row["event_type"] for row in rows if row["search"] == "type"] == ["comment"]


@example([search("deleted", "pear"), post("pear", verb="deleted"), post(None, verb="deleted")])
def test_what_is_deleted_is_not_found(rows: Rows) -> None:
    assert of(rows, "deleted") == []


@example([search("wrong", "apple OR"), search("wrong", "NOT apple"), post("apple")])
def test_a_record_that_is_no_search_changes_nothing(rows: Rows) -> None:
    assert of(rows, "wrong") == []
