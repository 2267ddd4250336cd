"""Budgets that refill at a constant rate, one for each name."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class _Budget:
    left: float
    at: float


class Budgets:
    """Each name may spend `burst` at once, and `rate` per second in the long run.

    At most `names` budgets are kept. If there are more, the oldest is forgotten, and is full again.
    """

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic, names: int = 10_000
    ) -> None:
        self._rate, self._burst, self._clock, self._names = rate, burst, clock, names
        self._budgets: dict[str, _Budget] = {}

    def take(self, name: str, amount: float) -> int:
        """Spend the amount and return 0, or spend nothing and return the seconds until there is enough."""
        now = self._clock()
        budget = self._budgets.setdefault(name, _Budget(self._burst, now))
        while len(self._budgets) > self._names:
            del self._budgets[next(iter(self._budgets))]
        budget.left = min(self._burst, budget.left + (now - budget.at) * self._rate)
        budget.at = now
        if budget.left < amount:
            return math.ceil((amount - budget.left) / self._rate)
        budget.left -= amount
        return 0
