"""Instants as text: the one shape in which a time may stand in an event.

`2015-05-17T10:05:03Z`, with up to six digits of a second and `Z` or an offset. Anything looser (a time
without its offset, a bare date, a seventh digit) could be read in two ways, so it is refused. The pattern is
the same for Python and for RE2: the collector reads times with the one and the decoder with the other.
"""

import re
from datetime import UTC, datetime

PATTERN = (
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)
REFUSED = "not a time such as 2015-05-17T10:05:03.25Z in the years 1 to 9999"

_WHOLE = re.compile(PATTERN)


def parse_timestamp(text: str) -> datetime:
    """The instant in UTC; ValueError where the text is not one."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(REFUSED)
    try:
        return to_utc(datetime.fromisoformat(text))
    except ValueError:
        raise ValueError(REFUSED) from None


def to_utc(instant: datetime) -> datetime:
    """The same instant in UTC; ValueError where it has no offset or leaves the calendar."""
    if instant.tzinfo is None:
        raise ValueError("a time without its offset; give it in UTC")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise ValueError(REFUSED) from None


def to_text(instant: datetime) -> str:
    """The instant as events carry it."""
    return to_utc(instant).isoformat().replace("+00:00", "Z")
