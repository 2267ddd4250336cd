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
        return {"holder": event["holder"]}
    if event["verb"] == RELEASED and holder == event["holder"]:
        return {}
    return claim


FOLD = Fold(CLAIM, apply)


def claimed(name: str, holder: str) -> NewEvent:
    """The event with which the holder gets the name."""
    return NewEvent(CLAIM, {"name": name, "verb": CLAIMED, "holder": holder})


def released(name: str, holder: str) -> NewEvent:
    """The event with which the holder gives up the name."""
    return NewEvent(CLAIM, {"name": name, "verb": RELEASED, "holder": holder})
