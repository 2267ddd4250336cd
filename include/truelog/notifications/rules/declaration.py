"""Declaration: a notification rule as data. `check` checks it before it enters the log."""

from collections.abc import Mapping
from typing import Any

from truelog.notifications.rules import found, row
from truelog.notifications.rules.found import KINDS
from truelog.notifications.rules.row import ROW
from truelog.notifications.rules.rule import NotificationRule
from truelog.support.errors import BadInput

_NEEDED = ("subject", "channel", "template")
_OF_FOUND, _OF_ROW = ("window_seconds",), ("condition",)
_ONLY_ROW = ("condition", "until", "for_seconds")


def check(state: Mapping[str, Any], name: str, columns: Mapping[str, str] | None = None) -> NotificationRule:
    """The rule of a declaration. `columns`: for a row rule, the types of its view's columns, if they are known.

    Raises:
        BadInput: says what is wrong.
    """
    kind = state.get("kind")
    if kind not in (*KINDS, ROW):
        raise BadInput(f"kind: a rule is about a {' or a '.join((*KINDS, ROW))}")
    needed, others = (_OF_ROW, _OF_FOUND) if kind == ROW else (_OF_FOUND, _ONLY_ROW)
    for field in (*_NEEDED, *needed):
        if state.get(field) is None:
            raise BadInput(f"{field}: a rule about a {kind} needs it")
    for field in others:
        if state.get(field) is not None:
            raise BadInput(f"{field}: a rule about a {kind} has none")
    return row.check(state, name, columns) if kind == ROW else found.check(state, name)
