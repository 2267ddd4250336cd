"""A stored search: words that texts of later events may have. A record is the whole search, or says that it ended."""

from typing import Literal

from pydantic import Field

from truelog import Event, Required, Topic

# One partition gives all records one order. Topics of searches are internal, because only a command checks a search.
TOPIC = Topic(key="search", subject=(), partitions=1, retention="7 days", internal=True)
REQUIRED = [Required("query", when="verb", is_in=("set",)), Required("event_type", when="verb", is_in=("set",))]
QUERIES = ["a", 'b OR "a b"', "text:é AND NOT a", "ht* user", "(a OR b) NOT h2", "e NOT (b OR"]


class StoredSearch(Event):
    """A person `set` or `retired` a search."""

    search: str = Field(min_length=1, max_length=63, examples=["outages", "a"], description="The search's name.")
    verb: Literal["set", "retired"] = Field(description="What happened.")
    event_type: str | None = Field(
        None, max_length=63, examples=["post", "comment"], description="The events that it searches; NULL if retired."
    )
    query: str | None = Field(
        None, max_length=2_000, examples=QUERIES, description="What their texts must have; NULL if it is retired."
    )
    begins: str = Field(
        max_length=65_536,
        examples=["{}", '{"post": {"0": 1000000, "1": 1000000, "2": 1000000}}'],
        description="End offsets, read before the record was written, as text: {topic: {partition: offset}}.",
    )
    decided_by: str | None = Field(None, max_length=256, description="Who decided.")
