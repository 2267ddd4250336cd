"""Sensor alerts: runs of readings out of range, and malfunctions."""

import sys
from collections import defaultdict
from typing import Any

import pytest

from tests.beds.lab import Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, examples, sent
from tests.views.generated import logs_and_relations, once
from truelog import View


def read(value: float, time: str, sensor: str = "s1", machine: str = "m1") -> Sent:
    fields = {"measured": value, "lowest": 0.0, "highest": 80.0}
    return sent("reading", sensor_id=sensor, machine_id=machine, occurred_at=at(time), **fields)


@example([read(0.0, "10:00:00"), read(80.0, "10:00:01"), read(40.0, "10:00:02")])
def test_readings_in_range_are_no_alert(rows: Rows) -> None:
    assert rows == []


@example([read(81.0, "10:00:00"), read(85.5, "10:00:01"), read(50.0, "10:00:02"), read(-3.0, "10:00:03")])
def test_a_run_ends_with_a_reading_in_range(relations: Relations) -> None:
    assert [
        (row["started_at"], row["ended_at"], row["readings"], row["worst"], row["kind"]) for row in relations["runs"]
    ] == [
        (at("10:00:00"), at("10:00:01"), 2, 5.5, "out_of_range"),
        (at("10:00:03"), at("10:00:03"), 1, 3.0, "out_of_range"),
    ]


OVER_AN_HOUR = [read(90.0, "10:59:58"), read(90.0, "10:59:59"), read(90.0, "11:00:00")]


@examples(
    {
        "over the end of an hour": (OVER_AN_HOUR, [("malfunction", 3)]),
        "over an hour without readings": ([*OVER_AN_HOUR, read(90.0, "13:10:00")], [("malfunction", 4)]),
        "not over a reading in range": (
            [*OVER_AN_HOUR, read(20.0, "12:30:00"), read(90.0, "13:10:00")],
            [("malfunction", 3), ("out_of_range", 1)],
        ),
        "not over the first reading of the next hour": (
            [*OVER_AN_HOUR[:2], read(20.0, "11:00:00"), read(90.0, "11:00:01")],
            [("out_of_range", 2), ("out_of_range", 1)],
        ),
        "not over the last reading of the hour": (
            [read(90.0, "10:59:57"), read(20.0, "10:59:58"), *OVER_AN_HOUR[2:]],
            [("out_of_range", 1), ("out_of_range", 1)],
        ),
    }
)
def test_no_run_is_cut_by_the_end_of_an_hour(relations: Relations, expected: list[tuple[str, int]]) -> None:
    assert [(row["kind"], row["readings"]) for row in relations["runs"]] == expected


AT_ONCE = [read(value, "10:00:00") for value in (90.0, 20.0, 95.0, 95.0)]


@example(AT_ONCE, in_order=True)
def test_readings_at_the_same_time_are_in_the_order_of_the_log(rows: Rows) -> None:
    found = [(row["number"], row["readings"], row["worst"], row["is_first"], row["is_last"]) for row in rows]
    assert found == [(1, 1, 10.0, True, False), (2, 2, 15.0, False, True)]


@example([*(read(90.0, f"10:00:0{second}") for second in range(3)), read(90.0, "10:00:00", "s2", "m2")])
def test_three_in_a_row_are_a_malfunction_of_the_machine(relations: Relations) -> None:
    [machine] = relations["machines"]
    assert (machine["machine_id"], machine["runs"], machine["longest"]) == ("m1", 1, 3)


@example([sent("reading", sensor_id="s", machine_id="m", measured=1.7e308, lowest=-1.0, highest=-1.7e308)])
def test_the_excess_of_finite_readings_is_finite(rows: Rows) -> None:
    assert [row["worst"] for row in rows] == [sys.float_info.max]


HOT = [read(90.0, "10:00:00"), read(90.0, "10:00:02"), read(90.0, "10:00:04")]


@examples(
    {
        "hot": (HOT, [("malfunction", 3)]),
        "split": ([*HOT, read(20.0, "10:00:03")], [("out_of_range", 2), ("out_of_range", 1)]),
    }
)
def test_a_late_reading_in_range_splits_a_run(relations: Relations, expected: list[tuple[str, int]]) -> None:
    assert [(row["kind"], row["readings"]) for row in relations["runs"]] == expected


def test_generated_logs_give_the_runs_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    """The logs have readings of one sensor in three hours, and many readings at the same time."""
    several = over_hours = 0
    for events, found in logs_and_relations(lab, name, view):
        rows = sorted(
            (r["sensor_id"], r["started_at"], r["ended_at"], r["readings"], r["worst"]) for r in found["runs"]
        )
        expected = sorted(naive_runs(events))
        assert [row[:4] for row in rows] == [row[:4] for row in expected]
        assert sorted(row[4] for row in rows) == pytest.approx(sorted(row[4] for row in expected), rel=1e-12)
        several += any(readings > 1 for _, _, _, readings, _ in rows)
        over_hours += any(start.hour != end.hour for _, start, end, _, _ in rows)
    assert several > 5, "the logs hold too few runs"
    assert over_hours > 5, "the logs hold too few runs over the end of an hour"


def naive_runs(events: list[Row]) -> list[tuple[Any, ...]]:
    of_sensor: dict[Any, list[tuple[Any, bool, float]]] = defaultdict(list)
    distinct = once(
        events, lambda each: (each["sensor_id"], each["event_time"].replace(minute=0, second=0, microsecond=0))
    )
    for event in sorted(distinct, key=lambda each: (each["event_time"], each["partition"], each["offset"])):
        excess = max(event["measured"] - event["highest"], event["lowest"] - event["measured"])
        of_sensor[event["sensor_id"]].append((event["event_time"], excess > 0, excess))
    found = []
    for sensor, readings in of_sensor.items():
        run: list[tuple[Any, float]] = []
        for time, is_out, excess in [*readings, (None, False, 0.0)]:
            if is_out:
                run.append((time, excess))
            elif run:
                found.append((sensor, run[0][0], run[-1][0], len(run), max(worst for _, worst in run)))
                run = []
    return found
