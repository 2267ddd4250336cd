"""Retire a rule. It judges no later events, and its matches stay."""

from pydantic import Field

from commands.folds.rule import FOLD, RuleFields
from truelog.commands.declaration import Command, Decision, NewEvent, Refused, State
from truelog.patterns import versions
from truelog.storage.api_key import Role


class RetireRule(RuleFields):
    """The rule, and from where on it judges no events."""

    rule: str = Field(min_length=1, max_length=63, description="The rule's name.")


def name_of(command: RetireRule) -> str:
    return command.rule


def decide(state: State, command: RetireRule) -> Decision:
    if not state.get("definition"):
        return Refused(f"no rule {command.rule} is in force")
    fields = {"rule": command.rule, "verb": versions.RETIRED}
    return [NewEvent("rule", fields | {"begins": command.begins, "decided_by": command.decided_by})]


COMMAND = Command(RetireRule, FOLD, name_of, decide, role=Role.EDITOR)
