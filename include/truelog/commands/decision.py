"""The decision of one command on the states of its keys, without any access to a service."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from truelog.commands import claims, events
from truelog.commands.declaration import NewEvent, Refused, State
from truelog.commands.events import LogEvent
from truelog.commands.folding.states import KeyName, States
from truelog.commands.request import CommandRequest
from truelog.schema.event import EventTypes
from truelog.support.errors import BadDeclaration
from truelog.support.setting_groups.services import MOST_EVENT_BYTES

log = logging.getLogger(__name__)

ACCEPTED, REFUSED, CONFLICT = HTTPStatus.OK, HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED


@dataclass(frozen=True)
class Outcome:
    """What was decided: the status of the answer, the answer, and the events of an accepted command."""

    status: int
    answer: dict[str, Any]
    events: Sequence[LogEvent] = ()


def key_names(request: CommandRequest) -> list[KeyName]:
    """The keys whose states the decision needs: the key of the command, and its claims."""
    return [KeyName(request.command.fold.event, request.key), *(KeyName(claims.CLAIM, each) for each in request.claims)]


def decide(types: EventTypes, states: States, request: CommandRequest, now: datetime) -> Outcome:
    """Decide the command, and add the events of an accepted command to the states.

    Raises:
        BadDeclaration: the command's file made no valid decision. The states have not changed.
    """
    own, *claimed = key_names(request)
    state, version = states[own].state, states[own].version
    if request.expected_version not in (None, version):
        reason = f"the version is {version}, not {request.expected_version}"
        return Outcome(CONFLICT, {"conflict": reason, "version": version})
    taken = [each.key for each in claimed if not claims.is_free_for(states[each].state, own.event, own.key)]
    if taken:
        return _refused(f"{', '.join(taken)}: taken", version)
    decided = _decided(request, state)
    if isinstance(decided, Refused):
        return _refused(decided.reason, version)
    if full := _without_room(request, states, state):
        return _refused(full, version)
    free = [each.key for each in claimed if not states[each].state]
    new = [*decided, *(claims.claimed(name, own.key, own.event) for name in free)]
    made = [events.to_log(types, each, now) for each in new]
    _require_own_keys(request, made)
    if any(len(each.value) > MOST_EVENT_BYTES for each in made):  # Kafka would refuse it, and all events behind it wait
        return _refused(f"an event of the command has more than {MOST_EVENT_BYTES:,} bytes; send less text", version)
    states.add(made)
    if not state:
        states.in_use[own.event] += 1
    listed = [{"event": each.event, "event_id": each.event_id} for each in made]
    return Outcome(ACCEPTED, {"version": states.version(own), "events": listed}, made)


def _without_room(request: CommandRequest, states: States, state: State) -> str | None:
    """Why a key without a state may not get one, or None."""
    most, event = request.command.most, request.command.fold.event
    if most is None or state or states.in_use[event] < most:
        return None
    return f"{event}: {states.in_use[event]:,} are in force, and {request.name} allows {most:,}; retire one first"


def _refused(reason: str, version: int) -> Outcome:
    return Outcome(REFUSED, {"refused": reason, "version": version})


def _decided(request: CommandRequest, state: Any) -> Sequence[NewEvent] | Refused:
    try:
        decided = request.command.decide(state, request.fields)
    except Exception as error:
        log.exception("%s failed", request.name)
        raise BadDeclaration(f"the command {request.name} failed: {type(error).__name__}") from error
    if not isinstance(decided, Refused) and not decided:
        raise BadDeclaration(f"the command {request.name} was accepted without an event")
    return decided


def _require_own_keys(request: CommandRequest, made: Sequence[LogEvent]) -> None:
    locked = key_names(request)
    for each in made:
        if KeyName(each.event, each.key) not in locked:
            raise BadDeclaration(
                f"the command {request.name} decided on {each.event} {each.key}, which is neither its key nor its claim"
            )
