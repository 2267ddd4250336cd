"""Price moves: the largest rise and fall within five minutes, by hour."""

from datetime import datetime, timedelta
from typing import Any

from tests.beds.lab import Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, sent
from tests.views.generated import groups_of_windows, logs_and_rows
from truelog import View

WINDOW = timedelta(minutes=5)


def traded(price: int, time: str, symbol: str = "AAA") -> Sent:
    return sent("price", symbol=symbol, price=price, occurred_at=at(time))


def moves(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row["rise"], row["fall"]) for row in rows]


@example([traded(100, "10:00:00"), traded(130, "10:03:00"), traded(90, "10:04:59"), traded(200, "10:30:00")])
def test_a_rise_and_a_fall_within_five_minutes(rows: Rows) -> None:
    [row] = rows
    assert (row["rise"], row["rise_from"], row["rise_at"]) == (30, 100, at("10:00:00"))
    assert (row["fall"], row["fall_from"], row["fall_at"]) == (40, 130, at("10:03:00"))
    assert row["trades"] == 4


@example([traded(100, "10:00:00"), traded(200, "10:05:00")])
def test_a_move_that_takes_five_minutes_does_not_count(rows: Rows) -> None:
    assert moves(rows) == [(0, 0)]


@example([traded(100, "10:00:00"), traded(120, "10:00:00"), traded(110, "10:00:00")], in_order=True)
def test_trades_at_the_same_time_are_in_the_order_of_the_log(rows: Rows) -> None:
    [row] = rows
    assert (row["rise"], row["rise_from"], row["fall"], row["fall_from"]) == (20, 100, 10, 120)


@example([traded(100, "10:58:00"), traded(150, "11:01:00")])
def test_a_move_belongs_to_the_hour_in_which_it_began(rows: Rows) -> None:
    assert moves(rows) == [(50, 0), (0, 0)]


@example([traded(100, "10:00:00"), traded(150, "10:01:00", "BBB"), traded(90, "10:02:00", "BBB")])
def test_symbols_are_kept_apart(rows: Rows) -> None:
    assert moves(rows) == [(0, 0), (0, 60)]


@example(
    [
        *(traded(100, "10:00:00"), traded(105, "10:01:00")),
        *(traded(100, "10:00:00", "BBB"), traded(104, "10:01:00", "BBB")),
        traded(0, "10:00:00", "CCC"),
    ]
)
def test_large_moves_are_five_percent(relations: Relations) -> None:
    assert [(row["symbol"], row["rise"]) for row in relations["large"]] == [("AAA", 5)]


def test_generated_logs_give_the_moves_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    moved = 0
    for events, found in logs_and_rows(lab, name, view):
        assert {(row["symbol"], row["hour"]): (row["rise"], row["fall"]) for row in found} == naive_moves(events)
        moved += any(rise or fall for rise, fall in moves(found))
    assert moved > 10, "the logs hold too few moves"


def naive_moves(events: list[Row]) -> dict[tuple[str, datetime], tuple[int, int]]:
    best: dict[Any, tuple[int, int]] = {}
    for key, trades in groups_of_windows(events, "symbol", WINDOW, hour_of).items():
        for first in (each for each in trades if hour_of(each["event_time"]) == key[1]):
            begin, price = first["event_time"], first["price"]
            later = [e["price"] for e in trades if place(e) >= place(first) and e["event_time"] - begin < WINDOW]
            rise, fall = best.get(key, (0, 0))
            best[key] = max(rise, max(later) - price), max(fall, price - min(later))
    return best


def hour_of(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


def place(event: Row) -> tuple[datetime, int, int]:
    return event["event_time"], event["partition"], event["offset"]
