"""Two people become friends, or no longer are. A friendship has no direction."""

from typing import Literal

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="person_id", subject=("person_id", "friend_id"), partitions=4, retention="7 days", compacted=False)


class Friendship(Event):
    """A person `friended` or `unfriended` another person."""

    person_id: str = Field(
        min_length=1, max_length=128, examples=["ann", "bob", "eve"], description="One of the two people."
    )
    friend_id: str = Field(
        min_length=1, max_length=128, examples=["ann", "bob", "eve"], description="The other person."
    )
    verb: Literal["friended", "unfriended"] = Field(description="What happened.")
