"""Durations as people write them: "10 seconds", "7 days", in a command "2h"; and as they are told: "10 s", "3 min"."""

import re
from datetime import timedelta

from truelog.support.errors import BadDeclaration

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_LETTERS = {unit[0]: length for unit, length in _UNITS.items()}
_BRIEF = re.compile(rf"(\d{{1,6}})([{''.join(_LETTERS)}])")
_WRITTEN = re.compile(rf"(\d+) ({'|'.join(_UNITS)})s?")


def seconds(written: str) -> int:
    """Seconds in a written duration."""
    found = _WRITTEN.fullmatch(written)
    if not found:
        raise BadDeclaration(f"{written!r} is no duration; write a number and one of {', '.join(_UNITS)}s.")
    return int(found[1]) * _UNITS[found[2]]


def parse_brief(written: str) -> timedelta:
    """As people type them: 90s, 30m, 2h, 1d."""
    found = _BRIEF.fullmatch(written)
    if not found:
        raise BadDeclaration(f"{written!r} is no duration; write a number and one of {', '.join(_LETTERS)}: 30m, 2h.")
    return timedelta(seconds=int(found[1]) * _LETTERS[found[2]])


def in_words(duration: float) -> str:
    """In the greatest unit of which there are two or more: 90 seconds are "90 s", 120 are "2 min"."""
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if duration >= 2 * unit:
            return f"{duration / unit:.0f} {name}"
    return f"{duration:.0f} s"
