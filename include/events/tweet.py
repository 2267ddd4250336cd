"""A short message to all followers of its author. A deleted tweet vanishes from every timeline."""

from typing import Literal

from pydantic import Field

from truelog import Event, Required, Topic

TOPIC = Topic(key="tweet_id", subject=("author_id",), partitions=4, retention="7 days", compacted=False)
REQUIRED = [Required("text", when="verb", is_in=("posted",))]
PEOPLE = ["ann", "bob"]


class Tweet(Event):
    """A person `posted` or `deleted` a tweet."""

    tweet_id: str = Field(
        min_length=1, max_length=128, examples=["t1", "t2", "t3", "t4"], description="The site's id for the tweet."
    )
    author_id: str = Field(min_length=1, max_length=128, examples=PEOPLE, description="Who wrote the tweet.")
    verb: Literal["posted", "deleted"] = Field(description="What happened.")
    text: str | None = Field(None, max_length=4096, description="What the tweet says; NULL if it is deleted.")
