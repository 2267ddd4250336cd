"""The language of searches: what it means, and what it refuses."""

import re

import pytest

from truelog.searches.query import (
    MOST_CHARACTERS,
    MOST_DEPTH,
    MOST_TERMS,
    All,
    Any,
    Beginning,
    Not,
    Phrase,
    Query,
    parse,
)
from truelog.support.errors import BadInput

FIELDS = ("text", "title")
A, B, C = (Phrase((word,)) for word in "abc")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A", A),
        ("a b", All((A, B))),
        ("a AND b OR c", Any((All((A, B)), C))),
        ("a (b OR c)", All((A, Any((B, C))))),
        ("a NOT b", All((A, Not(B)))),
        ("a NOT (b c)", All((A, Not(All((B, C)))))),
        ('"a b"', Phrase(("a", "b"))),
        ("a-b", Phrase(("a", "b"))),
        ('title:"a b" text:c', All((Phrase(("a", "b"), "title"), Phrase(("c",), "text")))),
        ("title:KAF*", Beginning("kaf", "title")),
        ("東京*", Beginning("東京")),
        ("text:東京都*", Phrase(("東京", "京都"), "text")),
        ("iPhone手机*", Phrase(("iphone", "手机"))),
        ("iPhone手*", All((Phrase(("iphone",)), Beginning("手")))),
        ("新手机iPh*", All((Phrase(("新手", "手机")), Beginning("iph")))),
        ("or and not", All(tuple(Phrase((word,)) for word in ("or", "and", "not")))),
        ("title:OR", Phrase(("or",), "title")),
    ],
)
def test_a_query_means(text: str, expected: Query) -> None:
    assert parse(text, FIELDS) == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "character 1: expected a word, a phrase, NOT or '(', found the end"),
        ("a AND", "character 6: expected a word, a phrase, NOT or '(', found the end"),
        ("a OR OR b", "character 6: expected a word, a phrase, NOT or '(', found 'OR'"),
        ("(a b", "character 5: expected ')', found the end"),
        ("a) b", "character 2: expected the end of the query, found ')'"),
        ('a "b c', "character 3: '\"' has no second quotation mark"),
        ("a:b", "character 1: there is no text field a; use text, title"),
        ("text:", "character 5: ':' is not part of a query here"),
        ("a !!", "character 3: there is no letter and no digit, found '!!'"),
        ("a*", "character 1: expected at least 2 letters or digits before '*'"),
        ("a*b* c", "character 1: expected one word before '*'"),
        ("東京-都庁*", "character 1: expected one word before '*'"),
        ("!*", "character 1: expected one word before '*'"),
        ("都*", "character 1: expected at least 2 letters or digits before '*'"),
        ("NOT a", "must have a word of the query"),
        ("a OR NOT b", "must have a word of the query"),
        ("NOT (a OR NOT b)", "must have a word of the query"),
        ("(" * (MOST_DEPTH + 1) + "a", "more than 20 nested parentheses and NOT"),
        ("NOT " * 400 + "a", "more than 20 nested parentheses and NOT"),
        (" ".join("a" * (MOST_TERMS + 1)), "character 201: more than 100 words and phrases"),
        (" OR ".join(["a"] * 1_000_000), f"{MOST_CHARACTERS:,} are the limit"),
    ],
)
def test_what_is_not_a_query_is_refused_with_its_place(text: str, error: str) -> None:
    with pytest.raises(BadInput, match=re.escape(error)):
        parse(text, FIELDS)
