"""Lag against a real log: records that are missing, and the age of the first of them by the broker's clock."""

import time

import pytest

from tests.scenes.conftest import World
from truelog import topics
from truelog.lag import Lag, lags
from truelog.positions import Positions

TOPIC = "page_view"


@pytest.fixture(scope="module")
def ends(world: World) -> Positions:
    """Of a log that has some records in each partition."""
    world.traffic.send(100)
    return topics.end_offsets(world.settings, [TOPIC])


def test_who_has_counted_everything_lags_by_nothing(world: World, ends: Positions) -> None:
    assert lags(world.settings, {"one": ends}, ends) == {"one": Lag(0, 0.0)}


def test_the_age_is_that_of_the_first_record_still_to_be_counted(world: World, ends: Positions) -> None:
    """Each stands elsewhere in the same partitions, and is told its own lag."""
    began = time.time()
    behind = Positions({TOPIC: {p: max(0, o - 1) for p, o in ends.offsets[TOPIC].items()}})
    farther = Positions({TOPIC: {p: max(0, o - 2) for p, o in ends.offsets[TOPIC].items()}})
    found = lags(world.settings, {"behind": behind, "farther": farther, "there": ends}, ends)
    assert {name: lag.events for name, lag in found.items()} == {"behind": 4, "farther": 8, "there": 0}
    assert 0 < found["behind"].seconds <= found["farther"].seconds
    world.traffic.send(1)
    now = topics.end_offsets(world.settings, [TOPIC])
    [fresh] = lags(world.settings, {"there": ends}, now).values()
    assert fresh.events == 1
    assert 0 <= fresh.seconds <= time.time() - began + 1
    assert fresh.seconds < found["behind"].seconds + time.time() - began


def test_a_position_past_the_end_is_no_lag(world: World, ends: Positions) -> None:
    past = Positions({TOPIC: {p: o + 10 for p, o in ends.offsets[TOPIC].items()}})
    assert lags(world.settings, {"past": past}, ends)["past"] == Lag(0, 0.0)
