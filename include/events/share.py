"""A person shares a post with friends, perhaps several times."""

from typing import Literal

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="share_id", subject=("person_id",), partitions=4, retention="7 days", compacted=False)


class Share(Event):
    """A person `shared` a post, or `unshared` it."""

    share_id: str = Field(
        min_length=1, max_length=128, examples=["s1", "s2", "s3"], description="The site's id for the share."
    )
    post_id: str = Field(min_length=1, max_length=128, examples=["x1", "x2"], description="The post.")
    person_id: str = Field(min_length=1, max_length=128, examples=["ann", "bob"], description="Who shares the post.")
    verb: Literal["shared", "unshared"] = Field(description="What happened.")
