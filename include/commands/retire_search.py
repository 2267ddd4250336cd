"""Retire a stored search. It finds no later events, and its hits stay."""

from commands.folds.search import FOLD, SearchFields, ends_of
from truelog.commands.declaration import Command, Decision, NewEvent, Refused, State
from truelog.patterns import versions
from truelog.storage.api_key import Role


class RetireSearch(SearchFields):
    """The search, and from where on it judges no events."""


def name_of(command: RetireSearch) -> str:
    return command.search


def decide(state: State, command: RetireSearch) -> Decision:
    if not state:
        return Refused(f"no search {command.search} is in force")
    fields = {"search": command.search, "verb": versions.RETIRED}
    begins = ends_of(command.begins, [state["event_type"]])
    return [NewEvent("stored_search", fields | {"begins": begins, "decided_by": command.decided_by})]


COMMAND = Command(RetireSearch, FOLD, name_of, decide, role=Role.EDITOR)
