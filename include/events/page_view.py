"""A request for a page: the data in a web server's access log, and the site's id for the visitor."""

from pydantic import Field

from truelog import Derived, Event, Quality, Topic

TOPIC = Topic(key="visitor_id", subject=("visitor_id", "ip"), partitions=4, retention="7 days", compacted=False)
QUALITY = Quality(nulls={"referrer": 0.9})
_HOST = r"(?P<host>\[[^\]/?#]*\]|[^/?#:@\[\]\\<>^|\x00-\x20]+)"
_ABOUT = {"host": "Host of the URL in lower case, without the port.", "page": "Path of the URL."}
_AUTHORITY = rf"(?:[A-Za-z][\w+.-]*:)?//(?:[^/?#]*@)?{_HOST}(?::[0-9]*)?"
_PATTERN = rf"^[\x00-\x20]*(?:{_AUTHORITY})?(?P<page>/[^?#]*?)?(?:[?#]|[\x00-\x20]*$)"
DERIVED = [Derived("url", _PATTERN, _ABOUT, lower=("host",))]  # `docs/urls.md` compares it with the URL standard


class PageView(Event):
    """A visitor requested a page."""

    ip: str | None = Field(default=None, max_length=45, description="IPv4 or IPv6 address of the visitor.")
    session_id: str | None = Field(default=None, max_length=128, description="The site's id for the visit.")
    visitor_id: str = Field(min_length=1, max_length=128, description="The site's id for the visitor.")
    url: str = Field(max_length=8192, description="URL of the page as requested.")
    referrer: str | None = Field(default=None, max_length=8192, description="URL of the page with the link.")
    browser: str | None = Field(default=None, max_length=256, description="Browser family.")
    language: str | None = Field(default=None, max_length=64, description="Preferred language of the browser.")
    status: int | None = Field(default=None, ge=100, le=599, description="HTTP status of the response.")
    bytes: int | None = Field(default=None, ge=0, le=2**50, description="Size of the response body in bytes.")
    response_ms: int | None = Field(default=None, ge=0, le=2**31 - 1, description="Response time in milliseconds.")
