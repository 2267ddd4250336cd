"""The ways in which a job is done: the size of the screen, the theme, a pointer or the keyboard alone, and the role.

A job has eight ways: each size, theme and hand, by one role or another. The gate does it in two of them: by the
analyst, who may do few jobs, and by another role with the other size, theme and hand. The other six are nightly.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import product
from typing import Any, Literal

import pytest
from playwright.sync_api import ViewportSize

from tests.pages.browsing import PHONE
from tests.pages.conftest import USERS

DESK: ViewportSize = {"width": 1440, "height": 900}
SIZES = {"1440 px": DESK, "390 px": PHONE}
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, Theme] = ("light", "dark")
HANDS = ("pointer", "keyboard")


@dataclass(frozen=True)
class Way:
    """How a job is done, and by whom."""

    size: str
    theme: Theme
    hand: str
    user: str

    def __str__(self) -> str:
        return ", ".join(astuple(self))


# A place in the list of a user's ways has a bit for the size, one for the theme and one for the hand.
BY_USER = {user: [Way(*each, user) for each in product(SIZES, THEMES, HANDS)] for user in USERS}
IN_GATE = 2
_ALL_OTHER = 0b111


def ways_of(number: int) -> list[Way]:
    """The ways of the job with this number. The gate does it in the first `IN_GATE` of them."""
    analyst, *others = BY_USER.values()
    first = number % len(analyst)
    of_gate = [analyst[first], others[number % len(others)][first ^ _ALL_OTHER]]
    return of_gate + [BY_USER[USERS[bits % len(USERS)]][first ^ bits] for bits in range(1, _ALL_OTHER)]


def parameters(number: int) -> Sequence[Any]:
    """The ways of a job, as parameters for pytest. Those that the gate leaves out are marked `nightly`."""
    return [
        pytest.param(way, id=str(way), marks=() if place < IN_GATE else pytest.mark.nightly)
        for place, way in enumerate(ways_of(number))
    ]


def each_job_in_its_ways(metafunc: pytest.Metafunc) -> None:
    """Give the fixture `begin` the ways of the job. A job's number is its place in its file."""
    if "begin" in metafunc.fixturenames:
        jobs = [name for name in vars(metafunc.module) if name.startswith("test_")]
        found = parameters(jobs.index(metafunc.function.__name__))
        metafunc.parametrize("begin", found, indirect=True)
