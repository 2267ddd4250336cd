"""Index: which of many searches a text fits, without trying each of them.

Each search is in the index under its rarest required word: each text that fits the search has this word. A search with
alternatives is there once for each of them. So a text is only compared with the searches that are there under its
words. Which word is the rarest is a guess from the texts that came before. It changes how long a search takes, and
never what it finds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from truelog.searches.document import Document
from truelog.searches.query import All, Any, Beginning, Not, Phrase, Query

_LEARNED = (128, 4_096)  # the numbers of texts after which the rarest words are chosen again
_MOST_WORDS = 500_000  # that are counted, because a producer may send texts of ever new words
_UNKNOWN = 64  # the count of a word of one letter that no text had; each further letter halves it
_OF_BEGINNING = 4  # how much more frequent a beginning is than a word, at a guess
T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A search in the index.

    needed: words that every text that fits has.
    is_plain: whether each text with the needed words fits.
    """

    key: T
    query: Query
    needed: frozenset[str]
    is_plain: bool


def entry(key: T, query: Query) -> Entry[T]:
    return Entry(key, query, frozenset(_needed(query)), _is_plain(query))


class Frequencies:
    """How many of the first texts have each word."""

    def __init__(self) -> None:
        self.texts = 0
        self.counts: Counter[str] = Counter()

    def learn(self, document: Document) -> bool:
        """Count a text's words. Return whether so many texts were counted that the rarest words are known better."""
        if self.texts >= _LEARNED[-1]:
            return False
        self.texts += 1
        if len(self.counts) < _MOST_WORDS:
            self.counts.update(document.words)
        return self.texts in _LEARNED

    def of(self, term: Phrase | Beginning) -> float:
        """The estimated share of texts with a term's rarest word."""
        if isinstance(term, Beginning):
            return _OF_BEGINNING * self.of_word(term.text)
        return min(map(self.of_word, term.words))

    def of_word(self, word: str) -> float:
        return (self.counts[word] + _UNKNOWN / 2.0 ** min(len(word), 20)) / (self.texts + 1)


class Index(Generic[T]):
    """The searches of one event type, by required words and beginnings."""

    def __init__(self, entries: Iterable[Entry[T]], known: Frequencies) -> None:
        words: defaultdict[str, list[Entry[T]]] = defaultdict(list)
        beginnings: defaultdict[str, list[Entry[T]]] = defaultdict(list)
        for each in entries:
            for term in set(_required(each.query, known)):
                if isinstance(term, Beginning):
                    beginnings[term.text].append(each)
                else:
                    words[min(term.words, key=known.of_word)].append(each)
        self._words: Mapping[str, list[Entry[T]]] = dict(words)
        self._beginnings: Mapping[str, list[Entry[T]]] = dict(beginnings)
        self._lengths = sorted({len(text) for text in beginnings})

    def found(self, document: Document) -> Iterator[Entry[T]]:
        """The searches that a text fits."""
        words, tried = document.words, set[int]()
        for each in self._candidates(document):
            if each.needed <= words and id(each) not in tried:
                tried.add(id(each))
                if each.is_plain or document.fits(each.query):
                    yield each

    def _candidates(self, document: Document) -> Iterator[Entry[T]]:
        for word in self._words.keys() & document.words:
            yield from self._words[word]
        if self._lengths:
            begun = {word[:length] for word in document.words for length in self._lengths if len(word) >= length}
            for text in self._beginnings.keys() & begun:
                yield from self._beginnings[text]


def _needed(query: Query) -> Iterator[str]:
    """Words that every text that fits has."""
    match query:
        case Phrase(words):
            yield from words
        case All(parts):
            for part in parts:
                yield from _needed(part)
        case _:
            return


def _is_plain(query: Query) -> bool:
    match query:
        case Phrase(words, field):
            return len(words) == 1 and field is None
        case All(parts):
            return all(map(_is_plain, parts))
        case _:
            return False


def _required(query: Query, known: Frequencies) -> list[Phrase | Beginning]:
    """The rarest terms such that every text that fits has at least one. Empty if there are none."""
    match query:
        case All(parts):
            choices = filter(None, (_required(part, known) for part in parts))
            return min(choices, key=lambda terms: sum(map(known.of, terms)), default=[])
        case Any(parts):
            alternatives = [_required(part, known) for part in parts]
            return [term for each in alternatives for term in each] if all(alternatives) else []
        case Not():
            return []
        case _:
            return [query]
