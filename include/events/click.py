"""A visitor clicked on a result. The click may be logged before its search: the two come from different senders."""

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="visitor_id", subject=("visitor_id",), partitions=4, retention="7 days", compacted=False)


class Click(Event):
    """One result of one search, opened."""

    session_id: str | None = Field(None, max_length=128, description="The visit, as the site counts visits.")
    visitor_id: str = Field(min_length=1, max_length=128, description="The visitor, as the site knows them.")
    search_id: str = Field(min_length=1, max_length=128, description="`event_id` of the search.")
    url: str = Field(max_length=8192, description="The result that was opened.")
