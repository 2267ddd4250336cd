"""Places in the changes of a view: what a subscriber has, and from where a later one goes on."""

import re
from dataclasses import dataclass

_TEXT = re.compile(r"(\d{1,9})\.(\d{1,18})\.([0-9a-f-]{36})")


@dataclass(frozen=True)
class Place:
    """The number of a row of the outbox, the last of its transaction.

    `identity` is the random id of this transaction, or of the output's beginning if nothing has changed since. A
    database that was restored has the same numbers again, but not the same ids.
    """

    version: int
    number: int
    identity: str

    def as_text(self) -> str:
        """The text for the `id` of an event."""
        return f"{self.version}.{self.number}.{self.identity}"

    @staticmethod
    def parse(text: str) -> "Place | None":
        """The place in a `Last-Event-ID`. None if the text is not a place."""
        found = _TEXT.fullmatch(text)
        return Place(int(found[1]), int(found[2]), found[3]) if found else None
