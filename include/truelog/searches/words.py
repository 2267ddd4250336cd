"""Words: the one function that finds the words of a text, in searches and in the events that they search.

1. The text is brought into the form NFKC of Unicode, so that characters that look and mean the same are the same.
2. A word is a run of letters, digits and marks. All other characters, and the underscore, separate words.
3. A word is compared without case (Unicode's case folding), and without the accents of Latin, Greek and Cyrillic
   letters: `Café`, `CAFE` and `cafe` are one word, and so are `Straße` and `strasse`.

Words are not stemmed: `shipped` is not `ship`. A language without spaces has no words in this sense: a run of its
characters is one word, which the beginning of the run finds (`prefix*`).
"""

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

_WITH_MARKS = (*range(0x300, 0x1F000), *range(0xE0100, 0xE01F0))  # code points among which all marks are
_MARKS = "".join(char for char in map(chr, _WITH_MARKS) if unicodedata.category(char).startswith("M"))
_WORD = re.compile(rf"(?:[^\W_]|[{_MARKS}])+")
_PLAIN_WORD = re.compile(r"[a-z0-9]+")
_ACCENTS = re.compile("[\u0300-\u036f]")


class Word(NamedTuple):
    """A word of a text, and where it begins in the text in the form NFKC."""

    word: str
    begin: int


def words(text: str) -> list[str]:
    """The words of a text, in their order."""
    if text.isascii():
        return _PLAIN_WORD.findall(text.lower())
    return [folded for found in _WORD.findall(readable(text)) if (folded := fold(found))]


def places(text: str) -> list[Word]:
    """The words of a `readable` text with their places."""
    return [Word(folded, found.start()) for found in _WORD.finditer(text) if (folded := fold(found[0]))]


def readable(text: str) -> str:
    """The text in the form NFKC, with all accents."""
    return unicodedata.normalize("NFKC", text)


_USUAL = 64  # letters; longer words would make the memory large


def fold(word: str) -> str:
    """A word without case and accents. A word of nothing but accents is empty."""
    if word.isascii():
        return word.lower()
    return _folded(word) if len(word) <= _USUAL else _folded.__wrapped__(word)


@lru_cache(maxsize=100_000)
def _folded(word: str) -> str:
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", word.casefold()))
    return unicodedata.normalize("NFKC", bare.casefold())
