"""Many searches and texts: the index finds what a naive evaluator finds, and only tries a few searches."""

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.library.searches import naive_search
from truelog.searches import index, query
from truelog.searches.document import SNIPPET, Document
from truelog.searches.index import Frequencies, Index, entry
from truelog.searches.percolator import Known, Percolator
from truelog.searches.query import Query
from truelog.support.errors import BadInput
from truelog.text.words import words

FIELDS = ("text", "title")


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


def drawn_queries(chosen: Random, number: int) -> list[Query]:
    found: list[Query] = []
    while len(found) < number:
        try:
            found.append(query.parse(naive_search.draw_query(chosen), FIELDS))
        except BadInput:
            continue
    return found


def drawn_document(chosen: Random) -> Document:
    return Document({field: naive_search.draw_text(chosen) for field in FIELDS})


@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_an_index_finds_what_a_naive_evaluator_finds_whatever_it_has_learned(seed: int) -> None:
    chosen = Random(seed)
    queries = drawn_queries(chosen, 20)
    entries = [entry(number, each) for number, each in enumerate(queries)]
    known = Frequencies()
    first, documents = Index(entries, known), [drawn_document(chosen) for _ in range(10)]
    for each in documents:
        known.learn(each)
    for searched in (first, Index(entries, known)):
        for document in documents:
            naive = [n for n, each in enumerate(queries) if naive_search.fits(each, document.texts)]
            assert sorted(each.key for each in searched.found(document)) == naive
            assert all(naive_search.fits(queries[number], document.texts) for number in naive)


@given(st.text(max_size=60))
def test_each_word_of_a_text_finds_it(text: str) -> None:
    document = Document({"text": text})
    for word in words(text):
        parsed = query.parse(f'"{word}"', FIELDS)
        assert document.fits(parsed)
        assert document.snippet(parsed)


@pytest.mark.parametrize(
    ("text", "fitting", "other"),
    [
        ("東京都*", "新東京都庁", "東京と京都"),
        ("iPhone手*", "ein iPhone手机", "iPhone 15"),
        ("手机iPh*", "新手机iPhone15", "手机"),
    ],
)
def test_a_beginning_in_a_script_without_spaces_finds_texts_that_go_on(text: str, fitting: str, other: str) -> None:
    searched = Index([entry("s", query.parse(text, FIELDS))], Frequencies())
    assert [each.key for each in searched.found(Document({"text": fitting}))] == ["s"]
    assert not list(searched.found(Document({"text": other})))


def test_versions_judge_the_events_between_their_offsets() -> None:
    down = query.parse("down", FIELDS)
    known = [
        Known("s", 1, "post", down, {"post": {"0": 2}}, {"post": {"0": 4}}),
        Known("s", 2, "post", down, {"post": {"0": 4}}, None),
        Known("other", 1, "tweet", down, {}, None),
    ]
    percolator = Percolator(known)
    document = Document({"text": "kafka is down"})
    found = [[each.version for each in percolator.found(Place("post", 0, n), document)] for n in range(6)]
    assert found == [[], [], [1], [1], [2], [2]]
    assert [each.search for each in percolator.found(Place("tweet", 0, 0), document)] == ["other"]
    assert not list(percolator.found(Place("comment", 0, 0), document))


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_searches_that_replace_others_find_what_all_of_them_find_anew(seed: int) -> None:
    chosen = Random(seed)

    def versions_of(name: str) -> list[Known]:
        made = enumerate(drawn_queries(chosen, chosen.randint(0, 3)), 1)
        return [Known(name, number, chosen.choice(("post", "tweet")), each, {}, None) for number, each in made]

    names = [f"s{number}" for number in range(8)]
    first = {name: versions_of(name) for name in names[:6]}
    percolator = Percolator(each for of_search in first.values() for each in of_search)
    for _ in range(3):
        changed = {name: versions_of(name) for name in chosen.sample(names, 3)}
        percolator.replace(changed)
        anew = Percolator(each for of_search in (first | changed).values() for each in of_search)
        for topic in ("post", "tweet", "comment"):
            document = drawn_document(chosen)
            found = sorted(each[:2] for each in percolator.found(Place(topic, 0, 0), document))
            assert found == sorted(each[:2] for each in anew.found(Place(topic, 0, 0), document))


def test_the_rarest_words_are_learned_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """`extraordinary` is longer, so it seems to be rare, until many texts have it."""
    monkeypatch.setattr(index, "_LEARNED", (10,))
    parsed = query.parse("extraordinary cat", FIELDS)
    percolator = Percolator([Known(str(n), 1, "post", parsed, {}, None) for n in range(5)])
    tried: list[Query] = []
    monkeypatch.setattr(Document, "fits", lambda self, of: tried.append(of))
    monkeypatch.setattr(index, "_is_plain", lambda _: False)
    text = Document({"text": "extraordinary"})
    for _ in range(11):
        assert not list(percolator.found(Place("post", 0, 0), text))
    indexed = percolator._indexes["post"]
    assert set(indexed._words) == {"cat"}
    assert set(Percolator([Known("s", 1, "post", parsed, {}, None)], percolator)._indexes["post"]._words) == {"cat"}


def test_a_snippet_is_around_the_first_word_of_the_first_field_that_has_one() -> None:
    text = "x " * 100 + "Kafka is DOWN " + "y " * 200
    document = Document({"title": "nothing", "text": text})
    snippet = document.snippet(query.parse('NOT up "down y" kafka', FIELDS))
    assert "Kafka is DOWN" in snippet
    assert len(snippet) == SNIPPET
    assert snippet.startswith("x ")
    assert document.snippet(query.parse("noth*", FIELDS)) == "nothing"
