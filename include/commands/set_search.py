"""Add a stored search, or change the search of the same name. A search that is not valid never enters the log."""

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from commands.folds.search import FOLD, SearchFields, ends_of
from searches.sources import SOURCES
from truelog.commands.declaration import Command, Decision, NewEvent, Refused, State
from truelog.patterns import versions
from truelog.searches.search import check
from truelog.storage.api_key import Role
from truelog.support.errors import BadInput

MOST = 100_000  # searches in force. Each Python process of an executor has all of them in memory


class SetSearch(SearchFields):
    """A search, and from where on it judges events."""

    event_type: str = Field(min_length=1, max_length=63, description="The events that it searches.")
    query: str = Field(min_length=1, max_length=2_000, description="What their texts must have (docs/searches.md).")

    @model_validator(mode="after")
    def _require_search(self) -> "SetSearch":
        try:
            check(self.search, self.event_type, self.query, SOURCES)
        except BadInput as error:
            raise PydanticCustomError("search", "{reason}", {"reason": str(error)}) from None
        return self


def name_of(command: SetSearch) -> str:
    return command.search


def decide(state: State, command: SetSearch) -> Decision:
    declared = {"event_type": command.event_type, "query": command.query}
    if state == declared:
        return Refused(f"the search {command.search} is in force with this query already")
    read = {command.event_type, *([state["event_type"]] if state else [])}
    fields = {"search": command.search, "verb": versions.SET, **declared, "begins": ends_of(command.begins, read)}
    return [NewEvent("stored_search", fields | {"decided_by": command.decided_by})]


COMMAND = Command(SetSearch, FOLD, name_of, decide, role=Role.EDITOR, most=MOST)
