"""A click on a search result. It may be logged before its search, because different senders log the two events."""

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="visitor_id", subject=("visitor_id",), partitions=4, retention="7 days", compacted=False)


class Click(Event):
    """A visitor opened one result of a search."""

    session_id: str | None = Field(None, max_length=128, description="The site's id for the visit.")
    visitor_id: str = Field(min_length=1, max_length=128, description="The site's id for the visitor.")
    search_id: str = Field(min_length=1, max_length=128, description="`event_id` of the search.")
    url: str = Field(max_length=8192, description="The result that was opened.")
