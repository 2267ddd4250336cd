"""Shares: how much of the API one sender may hold at once, so that the others are served.

The holders of an API key share its part. A scoped token has a smaller part, within that of the key that made it: a
browser holds it, so a visitor must not close the API to the other visitors of the same back end.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from truelog.services.api.access import Asker
from truelog.sources.collector.body import CapacityLimit


class Shares:
    """Limits what is in progress at once: in all, for each API key, and for each scoped token."""

    def __init__(self, most: int, of_key: int, of_token: int) -> None:
        self._keys = CapacityLimit(most, 0, of_key, 0)
        self._tokens = CapacityLimit(most, 0, of_token, 0, holder="scoped token")

    @contextmanager
    def admit(self, asker: Asker) -> Iterator[None]:
        """Admit one request or stream until the end of the block.

        Raises:
            RequestRefused: 429, too many are in progress.
        """
        if asker.token is None:
            with self._keys.admit(asker.name):
                yield
        else:
            with self._tokens.admit(asker.token), self._keys.admit(asker.name):
                yield
