"""A person likes a post or a comment, or no longer likes it."""

from typing import Literal

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="target_id", subject=("person_id",), partitions=4, retention="7 days", compacted=False)


class Like(Event):
    """A person `liked` or `unliked` a post or a comment."""

    target_id: str = Field(
        min_length=1,
        max_length=128,
        examples=["x1", "x2", "c1", "c2"],
        description="The id of the post or the comment.",
    )
    person_id: str = Field(min_length=1, max_length=128, examples=["ann", "bob", "eve"], description="Who likes it.")
    verb: Literal["liked", "unliked"] = Field(description="What happened.")
