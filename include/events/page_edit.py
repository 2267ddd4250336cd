"""An edit of a wiki page. Each edit is the whole page, so no version is ever lost."""

from typing import Literal

from pydantic import Field

from truelog import Event, Required, Topic

TOPIC = Topic(key="page_id", subject=("author_id",), partitions=4, retention="7 days", compacted=False)
REQUIRED = [Required("text", when="verb", is_in=("edited",))]
TEXTS = ["one\ntwo", "one\ntwo\ntwo", "two\none\n", "three"]


class PageEdit(Event):
    """A person `edited` or `deleted` a page."""

    page_id: str = Field(
        min_length=1, max_length=256, examples=["Kafka", "Log"], description="The site's id for the page."
    )
    author_id: str = Field(min_length=1, max_length=128, description="Who changed the page.")
    verb: Literal["edited", "deleted"] = Field(description="What happened.")
    title: str | None = Field(None, max_length=256, description="The title of the page.")
    comment: str | None = Field(None, max_length=512, description="Why the author changed the page.")
    text: str | None = Field(
        None, max_length=100_000, examples=TEXTS, description="The whole text; NULL if the page is deleted."
    )
