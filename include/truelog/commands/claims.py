"""Claims: names that at most one holder has at a time, such as `username:ann`.

A claim is a fact like any other: the events of type `claim` say who claimed a name and who released it.
"""

from truelog.commands.declaration import Fold, NewEvent, Payload, State

CLAIM = "claim"
CLAIMED, RELEASED = "claimed", "released"


def apply(claim: State, event: Payload) -> State:
    """The state of a name: its holder, or nothing if it is free. Only the holder can release a name."""
    holder = claim.get("holder")
    if event["verb"] == CLAIMED and holder is None:
        return {name: event[name] for name in ("holder", "holder_type") if event.get(name) is not None}
    if event["verb"] == RELEASED and holder == event["holder"]:
        return {}
    return claim


FOLD = Fold(CLAIM, apply)


def is_free_for(claim: State, event: str, key: str) -> bool:
    """Whether a key of an event type may have the name. A claim without a type belongs to this key of every type."""
    return not claim or (claim["holder"], claim.get("holder_type", event)) == (key, event)


def claimed(name: str, holder: str, holder_type: str | None = None) -> NewEvent:
    """The event with which the holder, a key of this event type, gets the name."""
    return NewEvent(CLAIM, {"name": name, "verb": CLAIMED, "holder": holder, "holder_type": holder_type})


def released(name: str, holder: str) -> NewEvent:
    """The event with which the holder gives up the name."""
    return NewEvent(CLAIM, {"name": name, "verb": RELEASED, "holder": holder})
