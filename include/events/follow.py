"""A person follows another person, or stops. Who follows whom is what the last event of each pair says."""

from typing import Literal

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(
    key="follower_id", subject=("follower_id", "followee_id"), partitions=4, retention="7 days", compacted=False
)
PEOPLE = ["ann", "bob"]


class Follow(Event):
    """A person `followed` or `unfollowed` another person."""

    follower_id: str = Field(min_length=1, max_length=128, examples=PEOPLE, description="Who follows.")
    followee_id: str = Field(min_length=1, max_length=128, examples=PEOPLE, description="Who is followed.")
    verb: Literal["followed", "unfollowed"] = Field(description="What happened.")
