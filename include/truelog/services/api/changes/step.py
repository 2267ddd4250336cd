"""Steps: the rows that one transaction of a view has changed, and the event about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from sys import getsizeof

import msgspec

from truelog.services.api.changes.place import Place
from truelog.support import timestamps

Change = tuple[str, str | None]  # the key and the row, as JSON; without a row, the row vanished


@dataclass(frozen=True)
class Step:
    """One transaction. `place` is the place after it."""

    place: Place
    positions: str
    made_at: datetime
    changes: tuple[Change, ...]

    @cached_property
    def size(self) -> int:
        """How many bytes of memory the keys and the rows take."""
        return sum(getsizeof(key) + (0 if row is None else getsizeof(row)) for key, row in self.changes)

    @cached_property
    def keys(self) -> Sequence[Mapping[str, msgspec.Raw]]:
        """The key of each change. Values stay as PostgreSQL has written them, so equal values have equal bytes."""
        return [msgspec.json.decode(key, type=dict[str, msgspec.Raw]) for key, _ in self.changes]

    def message(self, changes: Sequence[Change]) -> bytes:
        """The event that tells these changes of the step."""
        about = {
            "number": self.place.number,
            "positions": msgspec.Raw(self.positions.encode()),
            "at": timestamps.to_text(self.made_at),
        }
        told = ",".join(f'{{"key":{key},"row":{"null" if row is None else row}}}' for key, row in changes)
        return event("change", self.place, msgspec.json.encode(about)[:-1] + f',"changes":[{told}]}}'.encode())


def event(name: str, place: Place | None, data: bytes) -> bytes:
    """An event of a stream. JSON has no line breaks.

    Without a place, its name is the id, and a client that comes back with it begins again. With an empty id, a browser
    would send no `Last-Event-ID`, and the place in its address would count again.
    """
    identity = name if place is None else place.as_text()
    return b"event: %b\nid: %b\ndata: %b\n\n" % (name.encode(), identity.encode(), data)
