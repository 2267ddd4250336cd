"""Retire a notification rule. It sends no notifications of later rows; what is waiting is still delivered."""

from commands.folds.notification import FOLD, NotificationFields
from truelog.commands.declaration import Command, Decision, NewEvent, Refused, State
from truelog.storage.api_key import Role


class RetireNotification(NotificationFields):
    """The rule that ends."""


def name_of(command: RetireNotification) -> str:
    return command.notification


def decide(state: State, command: RetireNotification) -> Decision:
    if not state:
        return Refused(f"no notification {command.notification} is in force")
    fields = {"notification": command.notification, "verb": "retired", "decided_by": command.decided_by}
    return [NewEvent("notification_rule", fields)]


COMMAND = Command(RetireNotification, FOLD, name_of, decide, role=Role.EDITOR)
