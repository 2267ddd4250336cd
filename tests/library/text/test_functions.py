"""PostgreSQL finds the same words as Python, and what people ask for is found in documents."""

import random
from collections.abc import Iterator

import pytest

from tests.beds.lab import Lab
from truelog.text.characters import members
from truelog.text.words import words

SEED = 20_261_126
ALIKE = (  # thousands of characters of one kind
    range(0x3500, 0x4DC0),
    range(0x4E00, 0x9FFE),
    range(0xAC00, 0xD7A4),
    range(0xE000, 0xF900),
    range(0x17000, 0x187F8),
    range(0x20000, 0x2A6DF),
)


def texts() -> Iterator[str]:
    """Every character of Unicode 14, except most of those of one kind, alone and together."""
    chosen = random.Random(SEED)
    every = [char for char in members("assigned", 0x2FA20) if not any(ord(char) in alike for alike in ALIKE)]
    every += [chr(chosen.choice(chosen.choice(ALIKE))) for _ in range(300)]
    yield "".join(f"{char} " for char in every)
    for _ in range(400):
        yield "".join(chosen.choices((*chosen.choices(every, k=6), *" aÉ東서ก\u0301\u200d"), k=20))
    yield from ("", " ", "plain TEXT_1", "\U000105c0a", "\U0010fffe")


def test_law_postgresql_finds_the_words_that_python_finds(lab: Lab) -> None:
    asked = [*texts()]
    found = lab.connection.execute("SELECT truelog.words(each) FROM unnest(%s::text[]) AS each", (asked,)).fetchall()
    different = [(text, here, words(text)) for text, (here,) in zip(asked, found, strict=True) if here != words(text)]
    assert not different, different[0]
    assert lab.connection.execute("SELECT truelog.words(NULL)").fetchone() == ([],)


@pytest.mark.parametrize(
    ("asked", "text", "is_found"),
    [
        ("\u00e9cole", "E\u0301COLE", True),
        ("unicode", "\u00dcn\u00efcode", True),
        ("小龙", "李小龙", True),
        ("小李", "李小龙", False),
        ("o'reilly", "O\u2019Reilly", True),
        ("kafka\u00a0école", "École, Kafka", True),
        ('"data lake"', "lake data", False),
        ('"the data of the lake"', "some data of a lake", True),
        ("data or streams", "stream", True),
        ("data streams or engineers", "engineer of data", True),
        ("data -lake", "data lake", False),
        ('data -"lake house"', "data lake", True),
        ("-lake", "data", True),
        ("wi-fi", "wi fi", True),
        ("wi-fi", "fi wi", False),
        ("the", "the", False),
        ("\" or ' : & !", "or", False),
        ("a" * 3_000, "a" * 3_000, False),  # PostgreSQL keeps no such word
        ("it's \\ 'quoted'", "it's quoted", True),
    ],
)
def test_what_a_query_finds(lab: Lab, asked: str, text: str, is_found: bool) -> None:
    select = "SELECT truelog.word_vector(%s, 'A') @@ truelog.word_query(%s)"
    assert lab.connection.execute(select, (text, asked)).fetchone() == (is_found,)


def test_a_text_of_any_length_is_indexed(lab: Lab) -> None:
    [(places,)] = lab.connection.execute("SELECT length(truelog.word_vector(repeat('é b ', 9000), 'B'))").fetchall()
    assert places == 2
