"""Quality metrics of a log day: their bounds, their usual values, and the reasons why some are not checked."""

from collections.abc import Sequence

import pytest
from pydantic import Field

from truelog.schema.event import Event, EventType, Topic
from truelog.schema.loading.events import load_events
from truelog.schema.quality import EVENTS, KEYS, LATE, MALFORMED, MISSING, Quality, QualityMetric, quality_metric
from truelog.support.errors import BadDeclaration

TOPIC = Topic(key="who", subject=("who",), partitions=1, retention="1 day")
QUALITY = Quality(volume=(0.5, 2.0), nulls={"why": 0.9}, drift=0.25, late=0.05)


class Said(Event):
    """A person said something."""

    who: str = Field(description="Who.")
    why: str | None = Field(default=None, description="Why.")


@pytest.mark.parametrize(
    ("name", "value", "before", "found"),
    [
        (EVENTS, 50, [10, 100, 90, 110, 10_000], QualityMetric(EVENTS, 50, 100, 50, 200)),  # one odd day
        (KEYS, 3, [1, 2, 3], QualityMetric(KEYS, 3, 2, 1, 4)),
        (f"{MISSING}why", 0.95, [], QualityMetric(f"{MISSING}why", 0.95, None, None, 0.9)),  # a declared bound
        (f"{MISSING}how", 0.5, [0.25, 0.25, 0.3], QualityMetric(f"{MISSING}how", 0.5, 0.25, None, 0.5)),
        (f"{MISSING}how", 1.0, [0.9, 0.9, 1.0], QualityMetric(f"{MISSING}how", 1.0, 0.9, None, 1.0)),
        (LATE, 0.04, [], QualityMetric(LATE, 0.04, None, None, 0.05)),
        (MALFORMED, 0.5, [0, 0, 0], QualityMetric(MALFORMED, 0.5, 0, None, 0.05)),
    ],
)
def test_a_metric_has_its_bounds(name: str, value: float, before: Sequence[float], found: QualityMetric) -> None:
    assert quality_metric(QUALITY, name, value, before) == found


@pytest.mark.parametrize(
    ("name", "value", "before", "why"),
    [
        (EVENTS, 0, [], "not enough history: 0 preceding log days, 3 needed"),
        (EVENTS, 12, [9, 11], "not enough history: 2 preceding log days, 3 needed"),
        (KEYS, 12, [], "not enough history: 0 preceding log days, 3 needed"),
        (f"{MISSING}how", 0.5, [], "not enough history: 0 preceding log days, 3 needed"),
        (EVENTS, 12, [0, 0, 0, 5], "usually there are none"),
        (LATE, None, [0.1] * 7, "the day has no events to compute it from"),
        (f"{MISSING}why", None, [], "the day has no events to compute it from"),
    ],
)
def test_a_metric_that_cannot_be_checked_has_a_reason_and_no_bounds(
    name: str, value: float | None, before: Sequence[float], why: str
) -> None:
    found = quality_metric(QUALITY, name, value, before)
    assert (found.unjudged, found.least, found.most) == (why, None, None)
    assert found.description.endswith(f"not checked, {why}")


def test_a_metric_is_described_with_its_bounds() -> None:
    assert (
        quality_metric(QUALITY, EVENTS, 312, [1000] * 3).description
        == "events 312: at least 500 and at most 2,000, usually 1,000"
    )
    assert quality_metric(QUALITY, LATE, 0.25, []).description == "late 25 %: at most 5 %"


def test_an_event_type_without_declared_bounds_has_the_defaults() -> None:
    assert EventType("said", Said, TOPIC).quality == Quality()
    declared = load_events()
    assert declared["page_view"].quality.nulls["referrer"] == 0.9
    assert declared["search"].quality == Quality()


@pytest.mark.parametrize(
    ("quality", "why"),
    [
        (Quality(nulls={"who": 0.1}), "`nulls` may only list optional fields and derived columns, not who"),
        (Quality(nulls={"where": 0.1}), "`nulls` may only list optional fields and derived columns, not where"),
        (Quality(nulls={"why": 1.5}), "1.5 is not a share"),
        (Quality(volume=(2.0, 0.5)), "no number is between 2.0 and 0.5"),
        (Quality(keys=(-1, 0.5)), "no number is between"),
        (Quality(late=-0.1), "-0.1 is not a share"),
        (Quality(lateness="soon"), "'soon' is not a duration"),
        (Quality(lateness="0 seconds"), "is too short"),
    ],
)
def test_impossible_bounds_are_refused(quality: Quality, why: str) -> None:
    with pytest.raises(BadDeclaration, match=why):
        EventType("said", Said, TOPIC, quality)
