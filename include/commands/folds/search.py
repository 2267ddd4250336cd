"""The state of a search: what it searches while it is in force, and nothing before and after that."""

import json
from collections.abc import Iterable

from pydantic import Field

from commands.folds.rule import RuleFields
from searches.sources import SOURCES
from truelog.commands.declaration import Fold, Payload, State
from truelog.patterns import versions
from truelog.patterns.versions import RETIRED, SET
from truelog.searches.search import definition, reader

_read = reader(SOURCES)


class SearchFields(RuleFields):
    """What each command on a search says."""

    search: str = Field(pattern=r"^[a-z][a-z0-9_]{0,62}$", description="The search's name.")


def apply(search: State, event: Payload) -> State:
    """The search after the record. A record that the view `search_hits` ignores changes nothing."""
    if versions.read_ends(event["begins"]) is None:
        return search
    if event["verb"] == RETIRED:
        return {}
    event_type, query = event["event_type"], event["query"]
    if event["verb"] == SET and event_type and query and _read(event["search"], definition(event_type, query)):
        return {"event_type": event_type, "query": query}
    return search


def ends_of(begins: str, event_types: Iterable[str]) -> str:
    """The ends of these topics alone, because a search reads only one."""
    ends = versions.read_ends(begins) or {}
    return json.dumps({topic: ends[topic] for topic in sorted({*event_types} & ends.keys())})


FOLD = Fold("stored_search", apply)
