"""The state of a rule: its definition while it is in force, and nothing before and after that."""

from functools import lru_cache

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from rules.sources import SOURCES
from truelog.commands.declaration import Fields, Fold, Payload, State
from truelog.patterns import files, versions
from truelog.patterns.rule import TooLong
from truelog.patterns.versions import RETIRED, SET


class RuleFields(Fields):
    """What each command on a rule says."""

    begins: str = Field(
        max_length=65_536,
        examples=["{}", '{"price": {"0": 1200}}'],
        description="The ends of the topics' partitions, as JSON. The change counts for events from these offsets on.",
    )
    decided_by: str | None = Field(None, max_length=256, description="Who decided.")

    @field_validator("begins")
    @classmethod
    def _require_ends(cls, text: str) -> str:
        if versions.read_ends(text) is None:
            raise PydanticCustomError("ends", "not JSON of the form topic: partition: offset, as text")
        return text


def apply(rule: State, event: Payload) -> State:
    """The rule after the record. A record that the view `matches` ignores changes nothing."""
    if versions.read_ends(event["begins"]) is None:
        return rule
    if event["verb"] == RETIRED:
        return {}
    read = versions.read_rule(event["rule"], event["definition"], SOURCES) if event["verb"] == SET else None
    if isinstance(read, TooLong):
        return {}
    return rule if read is None else {"definition": event["definition"]}


@lru_cache(maxsize=100)
def definition_of(text: str) -> tuple[str, str]:
    """The name of the rule in a text of either form, and its definition as JSON.

    Raises:
        BadInput: names the place in the text.
    """
    declared = files.read(text, SOURCES)
    return declared.rule, declared.model_dump_json(exclude_defaults=True)


FOLD = Fold("rule", apply)
