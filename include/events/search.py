"""A search: its query and the results that were shown. The search's id is its `event_id`."""

from pydantic import Field

from truelog import DerivedWords, Event, Topic

TOPIC = Topic(key="visitor_id", subject=("visitor_id",), partitions=4, retention="7 days", compacted=False)
DERIVED = [DerivedWords("query", "query_words", "The words of the query, as all searches and views find them.")]


class Search(Event):
    """A visitor searched and was shown a list of results."""

    session_id: str | None = Field(None, max_length=128, description="The site's id for the visit.")
    visitor_id: str = Field(min_length=1, max_length=128, description="The site's id for the visitor.")
    query: str = Field(max_length=1024, description="The query as the visitor typed it.")
    results: list[str] = Field(max_length=1000, description="The URLs that were shown, best first.")
