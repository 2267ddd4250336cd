"""Percolator: the versions of searches that a process knows, as an index that it keeps from batch to batch."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from truelog.patterns.versions import Ends, Placed, is_judged
from truelog.searches.document import Document
from truelog.searches.index import Entry, Frequencies, Index, entry
from truelog.searches.query import Query


class Known(NamedTuple):
    """A version of a search, and the offsets of the events that it judges."""

    search: str
    version: int
    event_type: str
    query: Query
    begins: Ends
    ends: Ends | None


class Percolator:
    """Finds the searches that an event fits."""

    def __init__(self, known: Iterable[Known], before: "Percolator | None" = None) -> None:
        """`before` has the frequencies of words that were learned so far."""
        self._entries: defaultdict[str, list[Entry[Known]]] = defaultdict(list)
        for each in known:
            self._entries[each.event_type].append(entry(each, each.query))
        self._frequencies: defaultdict[str, Frequencies] = before._frequencies if before else defaultdict(Frequencies)
        self._indexes = {name: Index(each, self._frequencies[name]) for name, each in self._entries.items()}
        self._replaced: Collection[str] = frozenset()
        self._further: Percolator | None = None

    def replace(self, changed: Mapping[str, Sequence[Known]]) -> None:
        """From now on, these searches have these versions, and all others keep their first versions."""
        self._replaced = changed.keys()
        self._further = Percolator((each for of_search in changed.values() for each in of_search), self)

    def found(self, event: Placed, document: Document) -> Iterator[Known]:
        """The versions of searches that judge an event and find it."""
        parts = [self] if self._further is None else [self, self._further]
        indexed = [each for each in parts if event.topic in each._indexes]
        if indexed and self._frequencies[event.topic].learn(document):
            for part in indexed:
                part._indexes[event.topic] = Index(part._entries[event.topic], self._frequencies[event.topic])
        for part in indexed:
            for each in part._indexes[event.topic].found(document):
                if each.key.search not in part._replaced and is_judged(event, each.key.begins, each.key.ends):
                    yield each.key
