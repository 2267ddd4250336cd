"""A visitor searched: what for, and what was shown. The search's id is its `event_id`."""

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="visitor_id", subject=("visitor_id",), partitions=4, retention="7 days", compacted=False)


class Search(Event):
    """One search, answered with a list of results."""

    session_id: str | None = Field(None, max_length=128, description="The visit, as the site counts visits.")
    visitor_id: str = Field(min_length=1, max_length=128, description="The visitor, as the site knows them.")
    query: str = Field(max_length=1024, description="What was searched for, as it was typed.")
    results: list[str] = Field(max_length=1000, description="URLs that were shown, best first.")
