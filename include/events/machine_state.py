"""A change of the state of a machine."""

from typing import Literal

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="machine_id", subject=(), partitions=4, retention="7 days", compacted=False)


class MachineState(Event):
    """A machine `started` or `stopped`."""

    machine_id: str = Field(min_length=1, max_length=128, examples=["m1", "m2"], description="The machine's id.")
    verb: Literal["started", "stopped"] = Field(description="What happened.")
