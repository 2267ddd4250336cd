"""A post that friends can like, comment and share."""

from typing import Literal

from pydantic import Field

from truelog import Event, Required, Topic

TOPIC = Topic(key="post_id", subject=("author_id",), partitions=4, retention="7 days", compacted=False)
REQUIRED = [Required("text", when="verb", is_in=("posted",))]


class Post(Event):
    """A person `posted` or `deleted` a post."""

    post_id: str = Field(min_length=1, max_length=128, examples=["x1", "x2"], description="The site's id for the post.")
    author_id: str = Field(min_length=1, max_length=128, examples=["ann", "bob"], description="Who wrote the post.")
    verb: Literal["posted", "deleted"] = Field(description="What happened.")
    text: str | None = Field(None, max_length=65_536, description="What the post says; NULL if it is deleted.")
