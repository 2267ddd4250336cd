"""Failed group: a group whose fold fails on its inputs, or makes two rows with one key. The group has no rows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FailedGroup:
    """The group's values as a JSON array of texts, with times in microseconds and dates in days; and the error."""

    values: str
    error: str
