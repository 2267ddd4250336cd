"""Durations as people write them: "10 seconds", "1 hour", "7 days"."""

import re

from truelog.errors import BadDeclaration

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_WRITTEN = re.compile(rf"(\d+) ({'|'.join(_UNITS)})s?")


def seconds(written: str) -> int:
    """Seconds in a written duration."""
    found = _WRITTEN.fullmatch(written)
    if not found:
        raise BadDeclaration(f"{written!r} is no duration; write a number and one of {', '.join(_UNITS)}s.")
    return int(found[1]) * _UNITS[found[2]]
