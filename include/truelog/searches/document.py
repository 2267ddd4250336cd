"""Document: the texts of an event, and whether they fit a query."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from truelog.searches.query import All, Any, Beginning, Not, Phrase, Query
from truelog.text.words import places, readable, words

SNIPPET = 160  # characters
_BEFORE = 40  # characters of a snippet before its word
_SPACE = " "


@dataclass(frozen=True)
class Document:
    """The texts of an event by field, in the order of their declaration."""

    texts: Mapping[str, str]

    @cached_property
    def fields(self) -> Mapping[str, list[str]]:
        """The words of each field."""
        return {name: words(text) for name, text in self.texts.items()}

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of all fields."""
        return frozenset().union(*self.fields.values())

    @cached_property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """The words that follow each other in a field."""
        return frozenset(pair for found in self.fields.values() for pair in pairwise(found))

    def fits(self, query: Query) -> bool:
        """Whether the texts fit a query."""
        match query:
            case Phrase(sought, field):
                return self._has_phrase(sought, field)
            case Beginning(text, field):
                return any(word.startswith(text) for word in self._of(field))
            case All(parts):
                return all(map(self.fits, parts))
            case Any(parts):
                return any(map(self.fits, parts))
            case Not(part):
                return not self.fits(part)

    @cached_property
    def firsts(self) -> Mapping[str, tuple[str, Mapping[str, int]]]:
        """The readable text of each field, and where each of its words is for the first time."""
        shown = {name: readable(text) for name, text in self.texts.items()}
        return {
            name: (text, {each.word: each.begin for each in reversed(places(text))}) for name, text in shown.items()
        }

    def snippet(self, query: Query) -> str:
        """A part of the text with the first word that fits a term of the query, of the first field that has one."""
        terms = list(_terms(query))
        for field, (text, firsts) in self.firsts.items():
            found = [at for term in terms if (at := _first(term, field, firsts)) is not None]
            if found:
                return _around(text, min(found))
        return ""

    def _of(self, field: str | None) -> Collection[str]:
        return self.words if field is None else self.fields.get(field, ())

    def _has_phrase(self, sought: tuple[str, ...], field: str | None) -> bool:
        if len(sought) == 1:
            return sought[0] in self._of(field)
        if not all(pair in self.pairs for pair in pairwise(sought)):
            return False
        fields = self.fields.values() if field is None else [self.fields.get(field, [])]
        return any(_contains(found, sought) for found in fields)


def _contains(found: list[str], sought: tuple[str, ...]) -> bool:
    """Whether words follow each other. One pass over the text: a phrase may repeat itself."""
    return _SPACE + _SPACE.join(sought) + _SPACE in _SPACE + _SPACE.join(found) + _SPACE


def _terms(query: Query) -> Iterator[Phrase | Beginning]:
    """The terms that are not after NOT."""
    match query:
        case Phrase() | Beginning():
            yield query
        case All(parts) | Any(parts):
            for part in parts:
                yield from _terms(part)
        case Not():
            return


def _first(term: Phrase | Beginning, field: str, firsts: Mapping[str, int]) -> int | None:
    """Where the first word of a field is that fits a term; None if there is none."""
    if term.field not in (None, field):
        return None
    if isinstance(term, Phrase):
        return firsts.get(term.words[0])
    return min((at for word, at in firsts.items() if word.startswith(term.text)), default=None)


def _around(text: str, at: int) -> str:
    """The part of a text around a place, with whole words where it can."""
    begin = 0 if at <= _BEFORE else at - _BEFORE
    if begin and (space := text.find(_SPACE, begin, at)) >= 0:
        begin = space + 1
    return text[begin : begin + SNIPPET]
