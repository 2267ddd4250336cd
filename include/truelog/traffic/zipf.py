"""Zipf's law: a few items are chosen often, and most items rarely."""

from dataclasses import dataclass, field
from itertools import accumulate
from random import Random


@dataclass(frozen=True)
class Zipf:
    """A random choice by Zipf's law: item n is chosen n times less often than the first item."""

    items: tuple[str, ...]
    weights: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(accumulate(1 / n for n in range(1, len(self.items) + 1))))

    def draw(self, random: Random) -> str:
        return random.choices(self.items, cum_weights=self.weights)[0]
