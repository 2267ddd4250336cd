"""The slot of a reader of the API in a view, by which a share of the readers gets another version.

The slot depends only on the name of the API key and on the view, so a reader always has the same slot, in every process
and after a restart. In another view, the same reader has another slot, so it is not the first one everywhere.
"""

import hashlib

SLOTS = 100  # a share of N percent has the slots below N


def reader_slot(view: str, reader: str) -> int:
    """The slot of the holder of an API key, from 0 to 99."""
    digest = hashlib.sha256(f"{view}\0{reader}".encode()).digest()
    return int.from_bytes(digest[:8]) % SLOTS
