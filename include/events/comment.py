"""A comment on a post. A deleted comment vanishes with its likes."""

from typing import Literal

from pydantic import Field

from truelog import Event, Required, Topic

TOPIC = Topic(key="comment_id", subject=("author_id",), partitions=4, retention="7 days", compacted=False)
REQUIRED = [Required("text", when="verb", is_in=("posted",))]


class Comment(Event):
    """A person `posted` or `deleted` a comment."""

    comment_id: str = Field(
        min_length=1, max_length=128, examples=["c1", "c2", "c3"], description="The site's id for the comment."
    )
    post_id: str = Field(min_length=1, max_length=128, examples=["x1", "x2"], description="The post.")
    author_id: str = Field(min_length=1, max_length=128, examples=["ann", "bob"], description="Who wrote the comment.")
    verb: Literal["posted", "deleted"] = Field(description="What happened.")
    text: str | None = Field(None, max_length=65_536, description="What the comment says; NULL if it is deleted.")
