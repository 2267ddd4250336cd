"""Add a rule, or change the rule of the same name. A rule that is not valid is refused before it enters the log."""

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from commands.folds import rule
from truelog.commands.declaration import Command, Decision, NewEvent, Refused, State
from truelog.patterns import versions
from truelog.patterns.rule import MOST_BYTES
from truelog.storage.api_key import Role
from truelog.support.errors import BadInput

MOST = 200  # rules in force. Each batch searches for all of them among the events of an entity


class SetRule(rule.RuleFields):
    """A rule, and from where on it judges events."""

    definition: str = Field(max_length=MOST_BYTES, description="The rule, as JSON or as text (docs/patterns.md).")

    @field_validator("definition")
    @classmethod
    def _require_rule(cls, text: str) -> str:
        try:
            rule.definition_of(text)
        except BadInput as error:
            raise PydanticCustomError("rule", "{reason}", {"reason": str(error)}) from None
        return text


def name_of(command: SetRule) -> str:
    return rule.definition_of(command.definition)[0]


def decide(state: State, command: SetRule) -> Decision:
    name, definition = rule.definition_of(command.definition)
    if state.get("definition") == definition:
        return Refused(f"the rule {name} is in force with this definition already")
    fields = {"rule": name, "verb": versions.SET, "definition": definition}
    return [NewEvent("rule", fields | {"begins": command.begins, "decided_by": command.decided_by})]


COMMAND = Command(SetRule, rule.FOLD, name_of, decide, role=Role.EDITOR, most=MOST)
