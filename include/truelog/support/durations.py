"""Durations as text: "10 seconds" or "7 days" in declarations, "2h" in commands, "10 s" or "3 min" in messages."""

import re
from datetime import timedelta

from truelog.support.errors import BadDeclaration

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_LETTERS = {unit[0]: length for unit, length in _UNITS.items()}
_BRIEF = re.compile(rf"(\d{{1,6}})([{''.join(_LETTERS)}])")
_LONG = re.compile(rf"(\d+) ({'|'.join(_UNITS)})s?")


def seconds(text: str) -> int:
    """The number of seconds in a declared duration such as "7 days"."""
    match = _LONG.fullmatch(text)
    if not match:
        raise BadDeclaration(f"{text!r} is not a duration; write a number and one of {', '.join(_UNITS)}s.")
    return int(match[1]) * _UNITS[match[2]]


def parse_brief(text: str) -> timedelta:
    """Parse a duration typed in a command, such as 90s, 30m, 2h or 1d."""
    match = _BRIEF.fullmatch(text)
    if not match:
        raise BadDeclaration(f"{text!r} is not a duration; write a number and one of {', '.join(_LETTERS)}: 30m, 2h.")
    return timedelta(seconds=int(match[1]) * _LETTERS[match[2]])


def in_words(duration: float) -> str:
    """Format seconds in the largest unit that fits at least twice: 90 becomes "90 s", 120 becomes "2 min"."""
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if duration >= 2 * unit:
            return f"{duration / unit:.0f} {name}"
    return f"{duration:.0f} s"
