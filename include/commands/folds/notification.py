"""The state of a notification rule: its declaration while it is in force, and nothing before and after that."""

from pydantic import Field

from truelog.commands.declaration import Fields, Fold, Payload, State
from truelog.notifications.rules import declaration
from truelog.support.errors import BadInput

DECLARED = (
    "kind",
    "subject",
    "channel",
    "group_by",
    "window_seconds",
    "condition",
    "until",
    "for_seconds",
    "template",
)


class NotificationFields(Fields):
    """What each command on a notification rule says."""

    notification: str = Field(pattern=r"^[a-z][a-z0-9_]{0,62}$", description="The rule's name.")
    decided_by: str | None = Field(None, max_length=256, description="Who decided.")


def apply(notification: State, event: Payload) -> State:
    """The rule after the record. A record that is not a valid rule changes nothing."""
    if event["verb"] == "retired":
        return {}
    declared = {name: event[name] for name in DECLARED}
    if event["verb"] != "set":
        return notification
    try:
        declaration.check(declared, event["notification"])
    except BadInput:
        return notification
    return declared


FOLD = Fold("notification_rule", apply)
