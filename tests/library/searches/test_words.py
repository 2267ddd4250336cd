"""The words of a text, in many scripts."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelog.searches.words import places, readable, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Kafka is DOWN.", "kafka is down"),
        ("Café CAFE cafe\u0301 Straße STRASSE", "cafe cafe cafe strasse strasse"),
        ("wi-fi foo_bar a/b\u00a0c\u3000d", "wi fi foo bar a b c d"),
        ("ﬁne ½ İstanbul Ω ΏΣ ΟΔΟΣ", "fine 1 2 istanbul ω ωσ οδοσ"),
        ("नमस्ते दुनिया", "नमस्ते दुनिया"),
        ("東京タワー、ｶﾀｶﾅ", "東京タワー カタカナ"),
        ("!!! \u0301 ''", "\u0301".strip("\u0301")),
    ],
)
def test_words(text: str, expected: str) -> None:
    assert words(text) == expected.split()


@given(st.text(max_size=40))
def test_the_form_in_which_a_text_is_encoded_does_not_matter(text: str) -> None:
    assert words(unicodedata.normalize("NFD", text)) == words(unicodedata.normalize("NFC", text))


@given(st.text(max_size=40))
def test_words_are_where_they_are_said_to_be(text: str) -> None:
    shown = readable(text)
    found = places(shown)
    assert [each.word for each in found] == words(text)
    assert [each.begin for each in found] == sorted({each.begin for each in found})
