"""Search: a stored search, as data.

A stored search has a name, an event type whose texts it searches, and a query. `check` checks it against what searches
may name.
"""

import json
from dataclasses import dataclass
from functools import lru_cache

from truelog.patterns.versions import Read
from truelog.searches import query as queries
from truelog.searches.catalogue import TextSources
from truelog.searches.query import Query
from truelog.support.errors import BadInput


@dataclass(frozen=True)
class Search:
    """A search that has been checked."""

    name: str
    event_type: str
    query: Query

    @property
    def event_types(self) -> frozenset[str]:
        return frozenset({self.event_type})


def check(name: str, event_type: str, query: str, sources: TextSources) -> Search:
    """The search of a declaration.

    Raises:
        BadInput: names the place in the query.
    """
    if event_type not in sources:
        raise BadInput(f"searches cannot read {event_type}; they read {', '.join(sorted(sources))}")
    return Search(name, event_type, queries.parse(query, sources[event_type].fields))


def definition(event_type: str, query: str) -> str:
    """What a record of a search says, beside its name."""
    return json.dumps({"event_type": event_type, "query": query}, ensure_ascii=False)


def read_definition(text: str) -> tuple[str, str] | None:
    """The event type and the query in a definition; None if it contains anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.keys() != {"event_type", "query"}:
        return None
    event_type, query = found["event_type"], found["query"]
    return (event_type, query) if isinstance(event_type, str) and isinstance(query, str) else None


def reader(sources: TextSources) -> Read[Search]:
    """Reads the searches that may name what these sources declare."""
    fields = {event_type: tuple(source.fields) for event_type, source in sources.items()}

    def read(name: str, text: str | None) -> Search | None:
        declared = None if text is None else read_definition(text)
        if declared is None or declared[0] not in fields:
            return None
        query = _parsed(declared[1], fields[declared[0]])
        return None if query is None else Search(name, declared[0], query)

    return read


@lru_cache(maxsize=200_000)
def _parsed(query: str, fields: tuple[str, ...]) -> Query | None:
    try:
        return queries.parse(query, fields)
    except BadInput:
        return None
