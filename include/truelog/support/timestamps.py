"""Timestamps as text, in the only format that an event may use.

An example is `2015-05-17T10:05:03Z`. The seconds may have up to six decimal places, and `Z` or an offset must follow.
Looser formats (no offset, a bare date, a seventh decimal place) are ambiguous and therefore rejected. The pattern has
the same meaning in Python, which the collector uses, and in RE2, which the decoder uses.
"""

import re
from datetime import UTC, datetime

# RE2 has no lookahead, so the pattern lists the place of the first digit that is not 0. Arrow would accept the year 0,
# but Python has none.
_YEAR = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
PATTERN = (
    _YEAR + r"-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)
REFUSED = "not a time such as 2015-05-17T10:05:03.25Z in the years 1 to 9999"

_WHOLE = re.compile(PATTERN)


def parse_timestamp(text: str) -> datetime:
    """The timestamp as an instant in UTC. Raises ValueError if the text is not a timestamp."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(REFUSED)
    try:
        return to_utc(datetime.fromisoformat(text))
    except ValueError:
        raise ValueError(REFUSED) from None


def to_utc(instant: datetime) -> datetime:
    """The same instant in UTC. Raises ValueError if the instant has no offset or is outside the calendar."""
    if instant.tzinfo is None:
        raise ValueError("a time without an offset; give it in UTC")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise ValueError(REFUSED) from None


def to_text(instant: datetime) -> str:
    """The instant in the timestamp format of events."""
    return to_utc(instant).isoformat().replace("+00:00", "Z")
