"""Feed: the numbered rows that a relay publishes.

Whoever writes a row draws its number in the row's transaction, while a lock keeps other writers of the feed out. So a
row becomes visible after all rows with smaller numbers, and no number is missing. A sequence of PostgreSQL would be
wrong: its numbers become visible out of order, and a rollback leaves a hole.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from truelog.relay.publish_spans import PublishSpan

RESYNC = "resync:"  # how the stored trouble of an output begins if only a resync ends it


class Row(NamedTuple):
    """A row to publish, as a record.

    id: no other row of the feed has it, not even a row with the same number in a database that was restored.
    value: None is a tombstone.
    span: of the row's transaction, if it is sampled.
    """

    number: int
    id: str
    topic: str
    key: bytes
    value: bytes | None
    headers: Mapping[str, bytes]
    span: PublishSpan | None = None


class Beginning(NamedTuple):
    """Where a feed begins: readers need no row before its first one. A feed may begin again, at greater numbers."""

    id: str
    number: int  # of the first row


class Feed(Protocol):
    """The rows of one table that a relay publishes."""

    @property
    def name(self) -> str:
        """The name, which the relay's transactional id and its place contain. No other feed has it."""

    def beginning(self) -> Beginning | None:
        """The last beginning. None if the feed has none yet."""

    def id_of(self, number: int) -> str | None:
        """The id of the row with this number. None if there is no such row."""

    def next_rows(self, number: int) -> Sequence[Row]:
        """The rows from this number on that one transaction publishes: all of them, or none."""

    def trim(self, number: int) -> object:
        """Remove rows before this number, which are published. The feed may keep them for other readers."""
