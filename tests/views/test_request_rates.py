"""How often an address asks: in ten-second panes, and in every minute that begins at one."""

from collections import Counter
from datetime import datetime, timedelta

from tests.laws.lab import CASES, Lab
from tests.views.conftest import Ask, Run
from tests.views.generated import clock_at_the_end, logs_and_relations
from tests.views.ways import Row, Sent, at, sent
from truelog import View

PANE, MINUTE, KEPT = timedelta(seconds=10), timedelta(minutes=1), timedelta(days=7)


def asked(time: str, ip: str | None = "192.0.2.1") -> Sent:
    return sent("page_view", occurred_at=at(time), visitor_id="ann", url="https://shop.example/", ip=ip)


def pane(time: str, requests: int, ip: str | None = "192.0.2.1") -> Row:
    return {"pane": at(time), "ip": ip, "requests": requests}


def minute(begin: datetime, requests: int, ip: str | None = "192.0.2.1") -> Row:
    return {"ip": ip, "window_start": begin, "window_end": begin + MINUTE, "requests": requests}


def test_requests_of_ten_seconds_add_up(run: Run) -> None:
    assert run([asked("10:00:00"), asked("10:00:09"), asked("10:00:10")]) == [pane("10:00:00", 2), pane("10:00:10", 1)]


def test_each_address_has_panes_of_its_own_and_so_has_an_unknown_one(run: Run) -> None:
    events = [asked("10:00:00"), asked("10:00:01", "2001:db8::1"), asked("10:00:02", None), asked("10:00:03", None)]
    assert run(events) == [pane("10:00:00", 1), pane("10:00:00", 1, "2001:db8::1"), pane("10:00:00", 2, None)]


def test_what_is_seven_days_old_by_the_clock_of_the_log_has_left(run: Run) -> None:
    """The clock of the lab stands at seven days after the beginning of this one, less a minute or so."""
    old = sent("page_view", occurred_at=at("00:00:00") - 2 * MINUTE, visitor_id="ann", url="/")
    assert run([old, asked("10:00:00")]) == [pane("10:00:00", 1)]


def test_a_request_counts_in_six_minutes(ask: Ask) -> None:
    begins = [at("09:59:10") + n * PANE for n in range(6)]
    assert ask("per_minute", [asked("10:00:05")]) == [minute(begin, 1) for begin in begins]


def test_a_minute_holds_six_panes_and_not_the_seventh(ask: Ask) -> None:
    found = ask("per_minute", [asked(f"10:0{n // 6}:{n % 6}0") for n in range(7)])
    assert [row["requests"] for row in found] == [1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1]


def test_a_silence_has_no_minutes(ask: Ask) -> None:
    found = ask("per_minute", [asked("10:00:00"), asked("10:02:00")])
    begins = [at(time) + n * PANE for time in ("09:59:10", "10:01:10") for n in range(6)]
    assert found == [minute(begin, 1) for begin in begins]


def test_addresses_do_not_count_for_each_other(ask: Ask) -> None:
    found = ask("per_minute", [asked("10:00:00"), asked("10:00:00", None), asked("10:00:01", None)])
    assert [row for row in found if row["window_start"] == at("10:00:00")] == [
        minute(at("10:00:00"), 1),
        minute(at("10:00:00"), 2, None),
    ]


def test_generated_logs_give_what_a_counter_gives(lab: Lab, name: str, view: View) -> None:
    oldest, cells = clock_at_the_end(lab, view) - KEPT, 0
    for events, found in logs_and_relations(lab, name, view):
        kept = [(begin, event["ip"]) for event in events if (begin := pane_of(event)) >= oldest]
        assert {(row["pane"], row["ip"]): row["requests"] for row in found[None]} == Counter(kept)
        minutes = Counter((begin - n * PANE, ip) for begin, ip in kept for n in range(6))
        assert {(row["window_start"], row["ip"]): row for row in found["per_minute"]} == {
            (begin, ip): minute(begin, requests, ip) for (begin, ip), requests in minutes.items()
        }
        cells += len(found[None])
    assert cells > CASES, "the logs hold too little"


def pane_of(event: Row) -> datetime:
    time: datetime = event["event_time"]
    return time.replace(second=time.second // 10 * 10, microsecond=0)
