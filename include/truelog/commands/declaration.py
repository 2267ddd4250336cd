"""The declaration of a command: its fields, the key whose state it needs, its claims, and the decision."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from truelog.storage.api_key import Role

LONGEST_KEY = 500  # characters, so that PostgreSQL can index each key

State = Mapping[str, Any]  # JSON; empty for a key without events
Payload = Mapping[str, Any]  # the fields of an event without its envelope, as the decoder reads them


class Fields(BaseModel):
    """The fields of a command's body. Each command derives its own class."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Fold:
    """How the state of a key follows from the events of one type with this key, in their order in the log.

    `apply` is pure. If the file that contains it changes, all states are made again from the log.
    """

    event: str
    apply: Callable[[State, Payload], State]


@dataclass(frozen=True)
class Refused:
    """The decision not to do what a command requests."""

    reason: str


@dataclass(frozen=True)
class NewEvent:
    """An event that a decision adds to the log. The platform adds its envelope."""

    event: str
    payload: Payload


Decision = Sequence[NewEvent] | Refused


def no_claims(_: Any) -> Sequence[str]:
    return ()


@dataclass(frozen=True)
class Command:
    """A command. `decide` is pure, and sees the state of the key with all accepted events.

    `claims` are names that only one key at a time may hold, such as `username:ann`. The command is refused unless all
    of them are free or held by its own key. If it is accepted, the key holds them all. All events of a decision have
    the command's key.

    role: what an API key needs to send the command.
    most: how many keys may have a state. A command that would give a state to a further key is refused.
    """

    fields: type[Fields]
    fold: Fold
    key: Callable[[Any], str]
    decide: Callable[[State, Any], Decision]
    claims: Callable[[Any], Sequence[str]] = no_claims
    role: Role = Role.PRODUCER
    most: int | None = None
