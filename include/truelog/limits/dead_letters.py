"""Limits the dead letters of each API key, because every dead letter is stored in the archive forever.

Each key has a budget of dead letters that refills at a constant rate. A request whose dead letters exceed the budget is
rejected as a whole and stores nothing. Requests without bad events are never limited.
"""

import time
from collections.abc import Callable

from truelog.limits.budget import Budgets
from truelog.support.errors import RequestRefused


class DeadLetterLimit:
    """Allows each key `burst` dead letters at once, and `rate` per second in the long run."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._budgets = rate, Budgets(rate, burst, clock)

    def take(self, key: str, letters: int) -> None:
        """Take the letters from the key's budget.

        Raises:
            RequestRefused: 429, the budget is too small. `Retry-After` says when it will be large enough.
        """
        if letters and (seconds := self._budgets.take(key, letters)):
            reason = f"{letters} events are invalid, and a key may send {self._rate:g} invalid events per second"
            raise RequestRefused(429, f"{reason}; nothing was stored", retry_after=seconds)
