"""A page was asked for: what a web server's access log says, and who asked as far as the site knows."""

from pydantic import Field

from truelog import Event, Quality, Topic

TOPIC = Topic(key="visitor_id", subject=("visitor_id", "ip"), partitions=4, retention="7 days", compacted=False)
QUALITY = Quality(nulls={"referrer": 0.9})


class PageView(Event):
    """One page served to one visitor."""

    ip: str | None = Field(default=None, max_length=45, description="Address of the visitor, IPv4 or IPv6.")
    session_id: str | None = Field(default=None, max_length=128, description="The visit, as the site counts visits.")
    visitor_id: str = Field(min_length=1, max_length=128, description="The visitor, as the site knows them.")
    url: str = Field(max_length=8192, description="The page, as it was asked for.")
    referrer: str | None = Field(default=None, max_length=8192, description="The page that led here.")
    browser: str | None = Field(default=None, max_length=256, description="Family of the browser.")
    language: str | None = Field(default=None, max_length=64, description="Language that the browser prefers.")
    status: int | None = Field(default=None, ge=100, le=599, description="HTTP status of the answer.")
    bytes: int | None = Field(default=None, ge=0, le=2**50, description="Size of the answer's body.")
    response_ms: int | None = Field(default=None, ge=0, le=2**31 - 1, description="Time that the answer took.")
