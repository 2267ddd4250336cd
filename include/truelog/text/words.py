"""Words: the one function that finds the words of a text, in searches, in events, in views and in queries.

1. The text is brought into Unicode's form NFKC, so that characters that look and mean the same are the same. Characters
   that Unicode 14 does not have stay as they are, and separate words.
2. A word is a run of letters, digits, marks, and characters that are not visible, such as the soft hyphen. All other
   characters, and the underscore, separate words.
3. A word is compared without case, without the accents of Latin, Greek and Cyrillic letters, and without characters
   that are not visible: `Café`, `CAFE` and `cafe` are one word, and so are `Straße` and `strasse`.
4. Han, Kana, Bopomofo, Hangul, Thai, Lao, Khmer and Myanmar have no spaces between words, or words with endings. Every
   two neighbours in a run of their letters are a word: `東京都` is `東京` and `京都`. A single letter is a word.

Words are not stemmed: `shipped` is not `ship`.

`words.sql` is the same function in PostgreSQL, and `truelog.text.word_column` is the same by column. A changed rule
needs a new number in `truelog.schema.derived`, and a new `LANGUAGE` in `truelog.views.searches`.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from truelog.text.characters import char_class

# Accents, variation selectors, and characters that are not visible.
NOT_COMPARED = r"\u0300-\u036f\ufe00-\ufe0f\U000e0100-\U000e01ef\u00ad\u200c\u200d\u2060\ufeff"
_LETTER = rf"[{char_class('unspaced')}][{char_class('mark')}]*"  # with its marks
_RUN = re.compile(rf"(?P<letters>(?:{_LETTER})+)|[{char_class('spaced')}]+")
_KNOWN = re.compile(rf"[{char_class('assigned')}]+")
_UNSPACED = re.compile(_LETTER)
_PLAIN_WORD = re.compile(r"[a-z0-9]+")
_NOT_COMPARED = re.compile(f"[{NOT_COMPARED}]")


class Word(NamedTuple):
    """A word of a text, and where it begins in the readable text."""

    word: str
    begin: int


def words(text: str) -> list[str]:
    """The words of a text, in their order."""
    if text.isascii():
        return _PLAIN_WORD.findall(text.lower())
    return [each.word for each in places(readable(text))]


def places(text: str) -> list[Word]:
    """The words of a `readable` text with their places."""
    return [word for run in _RUN.finditer(text) for word in (_pairs(run) if run["letters"] else _whole(run))]


def is_unbroken(text: str) -> bool:
    """Whether nothing in the text separates words. It may still be several, by letters of scripts without spaces."""
    shown = readable(text)
    return sum(len(run[0]) for run in _RUN.finditer(shown)) == len(shown)


def ends_with_pair(text: str) -> bool:
    """Whether the last word of an unbroken text is a pair of letters, which further letters do not make longer."""
    *_, last = _RUN.finditer(readable(text))
    return bool(last["letters"]) and len(_UNSPACED.findall(last[0])) > 1


def readable(text: str) -> str:
    """The text in the form NFKC, with all accents."""
    return _KNOWN.sub(lambda known: unicodedata.normalize("NFKC", known[0]), text)


def _whole(run: re.Match[str]) -> Iterator[Word]:
    if folded := fold(run[0]):
        yield Word(folded, run.start())


def _pairs(run: re.Match[str]) -> list[Word]:
    letters = [Word(fold(each[0]), run.start() + each.start()) for each in _UNSPACED.finditer(run[0])]
    return [Word(one.word + other.word, one.begin) for one, other in pairwise(letters)] or letters


_USUAL = 64  # letters; longer words would make the memory large


def fold(word: str) -> str:
    """A word without case and accents. A word of nothing but accents is empty."""
    if word.isascii():
        return word.lower()
    return _folded(word) if len(word) <= _USUAL else _folded.__wrapped__(word)


@lru_cache(maxsize=100_000)
def _folded(word: str) -> str:
    bare = _NOT_COMPARED.sub("", unicodedata.normalize("NFKD", word))
    return unicodedata.normalize("NFKC", bare.casefold())
