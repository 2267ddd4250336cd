"""Add a notification rule, or change the rule of the same name. A rule that is not valid never enters the log."""

from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from commands.folds.notification import DECLARED, FOLD, NotificationFields
from truelog.commands.declaration import Command, Decision, NewEvent, Refused, State
from truelog.notifications import rule
from truelog.support.errors import BadInput

_NAME = r"^[a-z][a-z0-9_]{0,62}$"


class SetNotification(NotificationFields):
    """A notification rule."""

    kind: Literal["match", "hit"] = Field(description="What it is about.")
    subject: str = Field(pattern=_NAME, description="The pattern rule or the stored search.")
    channel: str = Field(pattern=_NAME, description="The name of a channel in the settings.")
    group_by: str | None = Field(None, max_length=200, description="Columns whose equal values are one incident.")
    window_seconds: int = Field(3600, ge=1, le=604_800, description="How long an incident takes in further rows.")
    template: str = Field(min_length=1, max_length=1_000, description="The text, with columns such as $rule.")

    @model_validator(mode="after")
    def _require_rule(self) -> "SetNotification":
        try:
            rule.check(self.model_dump(), self.notification)
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


COMMAND = Command(SetNotification, FOLD, name_of, decide)
