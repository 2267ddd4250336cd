"""A reading of a sensor on a machine."""

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="sensor_id", subject=(), partitions=4, retention="7 days", compacted=False)


class Reading(Event):
    """A sensor measured a value."""

    sensor_id: str = Field(min_length=1, max_length=128, examples=["s1", "s2"], description="The sensor's id.")
    machine_id: str = Field(min_length=1, max_length=128, description="The machine that the sensor is on.")
    measured: float = Field(examples=[20.0, 95.5, -50.0], description="What the sensor measured.")
    lowest: float = Field(examples=[-10.0], description="Below this value, the reading is out of range.")
    highest: float = Field(examples=[80.0], description="Above this value, the reading is out of range.")
