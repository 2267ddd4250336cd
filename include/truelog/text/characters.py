"""Characters: the classes of Unicode 14's characters, by which words are found.

They are in a file, because releases of Python and PostgreSQL have different versions of Unicode, and no word may
depend on a version. It is read as a resource, because a task may import Truelog from a zip.
Unicode promises that the normal forms and the case of a character never change after it was assigned.
"""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files

_FILE = files("truelog.text") / "characters.txt"
_NEIGHBOURS = 24  # ranges, about the root of their number in a class


@cache
def char_class(name: str) -> str:
    """A class, for the brackets of a regular expression of Python or PostgreSQL."""
    return "".join(rf"\U{first:08X}-\U{last:08X}" for first, last in _classes()[name])


@cache
def java_class(name: str) -> str:
    """The same for Spark, whose regular expressions are those of Java.

    Java compares a character with each range of a class. Here, neighbouring ranges are a class of their own, and Java
    passes over it if the character is not between its ends.
    """
    ranges = _classes()[name]
    parts = (ranges[start : start + _NEIGHBOURS] for start in range(0, len(ranges), _NEIGHBOURS))
    return "".join(f"[{_in_java([(part[0][0], part[-1][1])])}&&[{_in_java(part)}]]" for part in parts)


def _in_java(ranges: list[tuple[int, int]]) -> str:
    return "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in ranges)


def members(name: str, end: int) -> Iterator[str]:
    """The characters of a class below a code point. It contains no surrogates."""
    for first, last in _classes()[name]:
        yield from (chr(code) for code in range(first, min(last + 1, end)))


@cache
def _classes() -> dict[str, list[tuple[int, int]]]:
    lines = [line for line in _FILE.read_text().splitlines() if not line.startswith("#")]
    declared = "\n".join(lines).replace("\n  ", " ").splitlines()
    return {name: [*map(_range, ranges.split())] for name, _, ranges in (each.partition(":") for each in declared)}


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first, 16), int(last or first, 16)
