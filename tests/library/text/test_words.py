"""The words of a text, in many scripts."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelog.text.characters import members
from truelog.text.words import fold, places, readable, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Kafka is DOWN.", "kafka is down"),
        ("Café CAFE cafe\u0301 Straße STRASSE", "cafe cafe cafe strasse strasse"),
        ("wi-fi foo_bar a/b\u00a0c\u3000d", "wi fi foo bar a b c d"),
        ("ﬁne ½ İstanbul Ω ΏΣ ΟΔΟΣ", "fine 1 2 istanbul ω ωσ οδοσ"),
        ("नमस्ते दुनिया", "नमस्ते दुनिया"),
        ("new \U000105c0a in Unicode 16", "new a in unicode 16"),
        ("東京タワー、ｶﾀｶﾅ", "東京 京タ タワ ワー カタ タカ カナ"),
        ("李小龙 小龙 龙", "李小 小龙 小龙 龙"),
        ("2024年に서울에서abc", "2024 年に に서 서울 울에 에서 abc"),
        ("นี่คือไทย", "นี่คื คือ อไ ไท ทย"),
        ("O'Reilly O\u2019Reilly O`Reilly", "o reilly o reilly o reilly"),
        ("co\u00adop می\u200cروم 葛\U000e0100城 ❤\ufe0f 👩\u200d💻", "coop میروم 葛城"),
        ("\u0419 \u0439 \u0401", "\u0438 \u0438 \u0435"),
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


@given(st.text(max_size=40))
def test_a_word_of_words_is_the_same_word(text: str) -> None:
    for word in words(text):
        assert fold(word) == word
        assert words(word) == [word]


@given(
    st.text(st.sampled_from("東京タคサ서 b"), max_size=12),
    st.text(st.sampled_from("東京タค서"), min_size=2, max_size=4),
)
def test_a_part_of_a_text_without_spaces_is_found(text: str, part: str) -> None:
    found = words(f"{text}{part}{text}")
    assert any(found[at : at + len(part) - 1] == words(part) for at in range(len(found)))


def test_the_classes_are_those_of_unicode_14() -> None:
    """A later release of Python knows further characters, and none of them is in the file."""
    assert all(unicodedata.category(char) not in ("Cn", "Cs") for char in members("assigned", 0x110000))
    stable = [char for char in members("assigned", 0x20000) if unicodedata.is_normalized("NFKC", char)]
    letters = {char for char in stable if char.isalpha() or char.isdecimal()}
    assert letters <= {*members("spaced", 0x20000), *members("unspaced", 0x20000)}
    assert len({*members("spaced", 0x20000)} & {*members("unspaced", 0x20000)}) == 0
