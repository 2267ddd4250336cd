"""Sends the commands that add and retire rules, searches and notification rules, without a collector."""

import json
import uuid
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from truelog.commands import catalogue, history, request
from truelog.commands.decision import key_names
from truelog.commands.request import Sender
from truelog.commands.session import Session
from truelog.control import event_registry
from truelog.log import topics
from truelog.storage.audit_trail import by_hand
from truelog.storage.database import connect
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.settings import Settings
from truelog.support.wait import until

SET, RETIRE = "set_rule", "retire_rule"  # the commands
SET_SEARCH, RETIRE_SEARCH = "set_search", "retire_search"
SET_NOTIFICATION, RETIRE_NOTIFICATION = "set_notification", "retire_notification"
_LOG_SECONDS = 10.0


@dataclass(frozen=True)
class Sent:
    """A decision on a rule, a search or a notification rule: accepted with a receipt, or refused with a reason.

    in_log: whether the change is in the log.
    """

    rule: str
    receipt: str | None = None
    refused: str | None = None
    in_log: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def send(settings: Settings, command: str, sources: Iterable[str], **fields: str) -> Sent:
    """Decide a command whose change counts for the events that come from now on, and wait until it is in the log.

    `sources` are the event types that rules or searches read.

    Raises:
        BadInput: a field is not valid; the message names the place.
        ServiceDown: nothing is decided, because the states do not contain the log yet.
    """
    event = catalogue.load().commands[command].fold.event
    _require_registered({*sources, event}, event_registry.event_types(settings))
    return decide(settings, command, **fields, begins=topics.end_offsets(settings, sources).as_json())


def decide(settings: Settings, command: str, **fields: Any) -> Sent:
    """Decide a command, and wait until its event is in the log.

    Raises:
        BadInput: a field is not valid; the message names the place.
        ServiceDown: nothing is decided, because the states do not contain the log yet.
    """
    commands, types = catalogue.load(), event_registry.event_types(settings)
    _require_registered({commands.commands[command].fold.event}, types)
    body = json.dumps({**fields, "decided_by": by_hand()}).encode()
    asked = request.parse(commands, command, body, Sender(by_hand()))
    with Session(settings, commands) as session:
        session.wait_for({name.event for name in key_names(asked)})
        [stored] = session.decide(types, [asked])
    if stored.receipt is None or not stored.is_accepted:
        return Sent(asked.key, refused=str(stored.answer.get("refused") or stored.answer.get("error")))
    return Sent(asked.key, str(stored.receipt), in_log=_is_in_log(settings, stored.receipt))


def _require_registered(names: Iterable[str], types: Collection[str]) -> None:
    if missing := sorted(set(names).difference(types)):
        raise NotSetUp(f"the event types {', '.join(missing)} are not registered: see `truelog status`")


def _is_in_log(settings: Settings, receipt: uuid.UUID) -> bool:
    """Whether the events of a decision reach the log within a time."""
    with connect(settings, autocommit=True) as connection:

        def require() -> None:
            found = history.find(connection, receipt)
            if found is None or not found.is_in_log:
                raise ServiceDown("the service `commands` has not published the change yet")

        try:
            until(require, _LOG_SECONDS, "the change in the log")
        except ServiceDown:
            return False
    return True
