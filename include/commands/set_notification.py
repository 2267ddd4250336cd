"""Add a notification rule, or change the rule of the same name. A rule that is not valid never enters the log.

A row rule is not compared with the columns of its view here. `truelog notifications add` compares it before sending it,
and `truelog notifications show` names what is wrong with a rule that is in force.
"""

from typing import Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from commands.folds.notification import DECLARED, FOLD, NotificationFields
from truelog.commands.declaration import Command, Decision, NewEvent, Refused, State
from truelog.notifications.rules import declaration, found
from truelog.storage.api_key import Role
from truelog.support.errors import BadInput

MOST = 1_000  # notification rules in force. The notifier compares each change with all of them

_NAME = r"^[a-z][a-z0-9_]{0,62}$"


class SetNotification(NotificationFields):
    """A notification rule."""

    kind: Literal["match", "hit", "row"] = Field(description="What it is about.")
    subject: str = Field(pattern=_NAME, description="The pattern rule, the stored search, or the view.")
    channel: str = Field(pattern=_NAME, description="The name of a channel in the settings.")
    group_by: str | None = Field(None, max_length=200, description="Columns whose equal values are one incident.")
    window_seconds: int | None = Field(
        None, ge=1, le=604_800, description="How long an incident takes in further matches or hits; an hour by default."
    )
    condition: str | None = Field(None, min_length=1, max_length=2_000, description="Which rows of a view it is about.")
    until: str | None = Field(
        None,
        min_length=1,
        max_length=2_000,
        description="When a row of an incident is over; by default, when it no longer fits.",
    )
    for_seconds: int | None = Field(None, ge=1, le=604_800, description="How long a row must fit.")
    template: str = Field(min_length=1, max_length=1_000, description="The text, with columns such as $rule.")

    @model_validator(mode="before")
    @classmethod
    def _with_window(cls, given: Any) -> Any:
        is_found = isinstance(given, dict) and given.get("kind") in found.KINDS
        return {"window_seconds": found.WINDOW_SECONDS} | given if is_found else given

    @model_validator(mode="after")
    def _require_rule(self) -> "SetNotification":
        try:
            declaration.check(self.model_dump(), self.notification)
        except BadInput as error:
            raise PydanticCustomError("notification", "{reason}", {"reason": str(error)}) from None
        return self


def name_of(command: SetNotification) -> str:
    return command.notification


def decide(state: State, command: SetNotification) -> Decision:
    declared = {name: getattr(command, name) for name in DECLARED}
    if state == declared:
        return Refused(f"the notification {command.notification} is in force with this declaration already")
    fields = {"notification": command.notification, "verb": "set", **declared}
    return [NewEvent("notification_rule", fields | {"decided_by": command.decided_by})]


COMMAND = Command(SetNotification, FOLD, name_of, decide, role=Role.EDITOR, most=MOST)
