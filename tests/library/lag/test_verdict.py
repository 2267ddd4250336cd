"""The lag verdict: a table of named cases, and random histories compared with a second implementation.

Several cases come from bug reports about Burrow, which evaluates consumer groups: it reported a quiet topic as stopped,
and it never reported a lag of 200,000 because the lag did not grow at every step.
"""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from tests.library import naive_lag
from truelog.lag.verdict import LagVerdict, Limits, Sample, assess

NOW, STEP, DAY = 1_000_000.0, 10.0, 86_400.0
END, RATE = 1_000_000_000, 100
LIMITS = Limits(blind=30, fine=10, late=60, still=120, falling=6 * 3600)

History = list[Sample]


def over(polls: int, sample: Callable[[int], Sample]) -> History:
    """A history of this many polls, the last one now. `sample` makes the sample of a number of polls ago."""
    return [replace(sample(ago), at=NOW - ago * STEP) for ago in reversed(range(polls))]


def behind(seconds: float, ago: int = 0) -> Sample:
    """A reader this many seconds behind a log with a hundred records per second and a week of retention."""
    end = END - int(ago * STEP) * RATE
    return Sample(NOW, end - int(seconds * RATE), 0, end, seconds, batch_at=NOW, retention=7 * DAY)


def since(seconds: float) -> Callable[[int], Sample]:
    """A reader that is not moving and is now this many seconds behind."""
    return lambda ago: replace(behind(seconds - ago * STEP, ago), position=END - int(seconds) * RATE)


def dead(sample: Callable[[int], Sample]) -> Callable[[int], Sample]:
    """The same samples, but the application makes no batches."""
    return lambda ago: replace(sample(ago), batch_at=NOW - DAY)


def kept_forever(sample: Callable[[int], Sample]) -> Callable[[int], Sample]:
    """The same samples, but the topic has no retention limit."""
    return lambda ago: replace(sample(ago), retention=None)


def quiet(_: int) -> Sample:
    """No record has arrived for hours, so the application makes no batches."""
    return Sample(NOW, 500, 0, 500, batch_at=NOW - 7200)


def one_new_record(ago: int) -> Sample:
    """A quiet topic, except for one record that arrived a second ago."""
    return quiet(ago) if ago else replace(quiet(ago), end=501, seconds=1.0)


def in_bulk(ago: int) -> Sample:
    """Repeatedly up to fifty seconds behind, then caught up."""
    return behind((0, 50, 40, 30, 20, 10)[ago % 6], ago)


def dips(ago: int) -> Sample:
    """A reader that was more than two minutes behind, caught up a minute ago and has not moved since."""
    return behind(150 if ago > 6 else (6 - ago) * STEP, ago)


def caught_up(ago: int) -> Sample:
    return behind(150 if ago > 7 else 0, ago)


def slow_since(polls: int) -> Callable[[int], Sample]:
    """A reader that has read half of the arriving records for this many polls."""
    return lambda ago: behind(max(0.0, (polls - ago) * 5.0), ago)


def growing(ago: int) -> Sample:
    """A reader that has read half of the arriving records for two minutes, with one dip in the lag."""
    return behind({3: 35, 2: 45}.get(ago, max(0.0, (12 - ago) * 5.0)), ago)


def overrun(ago: int) -> Sample:
    """A reader that has read half of the arriving records for ten minutes, with one dip in the lag."""
    return behind(15 + (60 - ago) * 5.0 - (4 if ago == 5 else 0), ago)


def busier(ago: int) -> Sample:
    """Traffic grows: the number of unread records rises, but the lag in seconds does not."""
    end = 50 * (100 - ago) ** 2
    return replace(behind(9), position=end - 50 * (100 - ago), end=end)


def new(ago: int) -> Sample:
    """A new view that reads the log from its beginning."""
    return behind(3 * DAY + ago * 3000, ago)


def on_the_edge(ago: int) -> Sample:
    """A reader an hour ahead of retention that is catching up."""
    return behind(7 * DAY - 3600 + ago * 50, ago)


def begins(*moves: int) -> Callable[[int], Sample]:
    """A reader half a minute behind a log whose beginning moved at each of these polls."""
    earliest = [END - 2_000_000 + 400_000 * n for n in range(len(moves) + 1)]
    return lambda ago: replace(behind(30, ago), earliest=earliest[sum(ago <= move for move in moves)], retention=None)


def set_back(ago: int) -> Sample:
    return Sample(NOW, 100 if ago > 3 else 60 - ago, 0, 100, seconds=1.0)


def set_back_and_returned(ago: int) -> Sample:
    return Sample(NOW, 50 if ago == 3 else 100, 0, 100)


def recreated(ago: int) -> Sample:
    """The topic was deleted and recreated half a minute ago, and the reader has begun to read the new topic."""
    return Sample(NOW, 900, 0, 900, topic_id="old") if ago > 3 else Sample(NOW, 60 - ago, 0, 60, topic_id="new")


def beyond_retention(ago: int) -> Sample:
    """A new version that is reading the archive, at a position days before the beginning of the log."""
    return replace(new(ago), earliest=END - 2 * int(DAY) * RATE, seconds=2 * DAY)


def cut_repeatedly(ago: int) -> Sample:
    """The same version, but the beginning of the log moves at every poll, as with size-based retention."""
    return replace(beyond_retention(ago), earliest=END - int(2 * DAY + ago * STEP) * RATE, retention=None)


def motionless_beyond_retention(ago: int) -> Sample:
    """A reader that is not moving, at a position before the beginning of the log."""
    return replace(beyond_retention(ago), position=0)


def stopped_before_a_transaction(ago: int) -> Sample:
    """A reader that does not read records below the open transaction."""
    return replace(since(900)(ago), committed_end=END - 800 * RATE)


def hidden_until(polls: int) -> Callable[[int], Sample]:
    """A reader that has waited ten minutes for the end of a transaction, which ended this many polls ago."""
    at = END - 900 * RATE
    return lambda ago: replace(since(900)(ago), committed_end=at if ago >= polls else None)


CASES: list[tuple[str, History, str, int]] = [
    ("there is no sample", [], "UNKNOWN", 1),
    ("the lag service died a minute ago", [replace(behind(0), at=NOW - 60)], "UNKNOWN", 1),
    ("a poll or two may be missing", [replace(behind(0), at=NOW - 30)], "OK", 12),
    ("its topic was created again", [Sample(NOW, blind="page_view was created again")], "UNKNOWN", 1),
    ("a failed poll is not a rewind", [Sample(NOW - 1, END + 1, blind="no topic"), behind(0)], "OK", 12),
    ("retention deleted unread records", [replace(behind(60), earliest=END - 5000)], "FALLING_OFF", 2),
    ("retention deleted only what it had read", [replace(behind(60), earliest=END - 6000)], "UNKNOWN", 8),
    ("retention deleted everything, after it was read", [replace(behind(0), earliest=END)], "OK", 12),
    ("it moved back, though its lag is small", over(60, set_back), "REWIND", 3),
    ("it moved back and returned", over(60, set_back_and_returned), "OK", 12),
    ("its topic was created again, and it reads the new one", over(60, recreated), "OK", 12),
    ("the log was cut and refilled", over(9, lambda _: Sample(NOW, 90, 0, 100, cut_at=80)), "REWIND", 3),
    ("the log ends before its position", over(9, lambda _: Sample(NOW, 100, 0, 90)), "REWIND", 3),
    ("stopped, an hour ahead of retention", over(60, dead(since(7 * DAY - 3600))), "FALLING_OFF", 4),
    ("stopped, a day ahead of retention", over(60, dead(since(6 * DAY))), "STOP", 6),
    ("an hour ahead of retention, and faster", over(60, on_the_edge), "WARN", 10),
    ("an hour ahead of retention, one sample: counts as motionless", [behind(7 * DAY - 3600)], "FALLING_OFF", 4),
    ("past retention, not deleted yet", over(60, lambda ago: behind(7 * DAY + 9, ago)), "FALLING_OFF", 4),
    ("a retention of a minute is not an emergency", [replace(behind(20), retention=60.0)], "UNKNOWN", 8),
    ("without retention, nothing is dropped", over(60, kept_forever(since(90 * DAY))), "STALL", 7),
    ("the beginning of the log moves towards it", over(60, begins(50, 35, 20, 5)), "FALLING_OFF", 5),
    ("the beginning of the log moved once", over(60, begins(30)), "OK", 12),
    ("an open transaction hides what it has not read", over(60, hidden_until(0)), "WARN", 10),
    ("the same, and its application makes no batches", over(60, dead(hidden_until(0))), "WARN", 10),
    ("the transaction has just ended", over(60, hidden_until(1)), "WARN", 10),
    ("the transaction ended, and it has not moved since", over(60, hidden_until(13)), "STALL", 7),
    ("it stopped before a transaction began", over(60, stopped_before_a_transaction), "STALL", 7),
    ("its application is down", over(60, dead(since(900))), "STOP", 6),
    ("its application never ran", over(60, lambda ago: replace(since(900)(ago), batch_at=None)), "STOP", 6),
    ("other views move, this one does not", over(60, since(900)), "STALL", 7),
    ("a restart within the limit", over(60, dead(lambda ago: since(50)(min(ago, 5)))), "WARN", 11),
    ("a quiet topic is not a stop (a false alarm of Burrow)", over(60, quiet), "OK", 12),
    ("quiet for hours, then one record", over(60, one_new_record), "OK", 12),
    ("ten seconds of history, behind", over(2, lambda ago: behind(30, ago)), "UNKNOWN", 8),
    ("ten seconds of history, caught up", over(2, lambda ago: behind(0, ago)), "OK", 12),
    ("it reads half of what arrives", over(61, overrun), "UNDERPROVISIONED", 9),
    ("the same with two minutes of history", over(13, overrun), "WARN", 10),
    ("200,000 behind, not growing (Burrow is silent)", over(60, lambda ago: behind(2000, ago)), "WARN", 10),
    ("one dip to zero (Burrow is silent)", over(60, dips), "WARN", 10),
    ("the dip is now", [*over(60, dips)[:-6], replace(behind(0), at=NOW)], "WARN", 10),
    ("caught up for more than a minute", over(60, caught_up), "OK", 12),
    ("a new view, fast and days behind", over(60, new), "WARN", 10),
    ("its lag grows, with a dip", over(60, growing), "WARN", 11),
    ("a little behind, not growing", over(60, lambda ago: behind(30, ago)), "OK", 12),
    ("it reads in bulk", over(60, in_bulk), "OK", 12),
    ("more traffic, not more seconds", over(60, busier), "OK", 12),
]


@pytest.mark.parametrize(("history", "verdict", "rule"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_verdict_where(history: History, verdict: str, rule: int) -> None:
    found = assess(history, NOW, LIMITS)
    assert (found.verdict, found.rule) == (verdict, rule), found.reason
    assert found.reason
    assert naive_lag.verdict(history, NOW, LIMITS) == (verdict, rule)


FROM_THE_ARCHIVE: list[tuple[str, History, str, int]] = [
    ("retention deleted unread records: the archive contains them", over(60, beyond_retention), "WARN", 10),
    ("the beginning of the log moves on ahead of it", over(60, cut_repeatedly), "WARN", 10),
    ("past retention, not deleted yet", over(60, lambda ago: behind(7 * DAY + 9, ago)), "WARN", 10),
    (
        "before the beginning of the log, which soon drops more",
        [replace(beyond_retention(0), seconds=7 * DAY - 60)],
        "UNKNOWN",
        8,
    ),
    (
        "its application is down, before the beginning of the log",
        over(60, dead(motionless_beyond_retention)),
        "STOP",
        6,
    ),
    ("about to read from the archive", over(60, dead(since(7 * DAY - 3600))), "FALLING_OFF", 4),
]


@pytest.mark.parametrize(
    ("history", "verdict", "rule"), [case[1:] for case in FROM_THE_ARCHIVE], ids=[case[0] for case in FROM_THE_ARCHIVE]
)
def test_the_verdict_on_a_reader_with_the_archive_as_backup(history: History, verdict: str, rule: int) -> None:
    limits = replace(LIMITS, backed=True)
    found = assess(history, NOW, limits)
    assert (found.verdict, found.rule) == (verdict, rule), found.reason
    assert naive_lag.verdict(history, NOW, limits) == (verdict, rule)


@pytest.mark.parametrize(("sample", "verdict"), [(since(1500), "STALL"), (dead(since(1500)), "STOP")])
def test_the_window_is_as_long_as_the_limits_need(sample: Callable[[int], Sample], verdict: str) -> None:
    """An example is an archive trigger of ten minutes."""
    limits = replace(LIMITS, still=720.0, late=5000.0)
    history = over(150, sample)
    assert assess(history, NOW, limits).verdict == naive_lag.verdict(history, NOW, limits)[0] == verdict


def test_the_reason_names_the_open_transaction() -> None:
    found = assess(over(60, hidden_until(0)), NOW, LIMITS)
    assert found.reason.endswith(f": an open transaction hides the records from offset {END - 900 * RATE:,} on")


def test_every_verdict_and_every_rule_has_a_case() -> None:
    assert {case[2] for case in CASES} == set(LagVerdict)
    assert {case[3] for case in CASES} == set(range(1, 13))


def test_a_reader_slower_than_its_input_gets_a_warning_within_two_minutes() -> None:
    """The time counts from the poll after which the reader reads half of the arriving records."""
    verdicts = [assess(over(60, slow_since(polls)), NOW, LIMITS).verdict for polls in range(40)]
    warned = verdicts.index(LagVerdict.WARN)
    assert warned * STEP <= 120
    assert set(verdicts[:warned]) == {"OK"}
    assert set(verdicts[warned:]) == {"WARN"}


def test_rates_and_the_time_to_catch_up() -> None:
    """Ten thousand records are unread. One reader reads three per arriving record, the other one per three arriving."""
    gaining = over(13, lambda ago: Sample(NOW, 90_000 - ago * 3000, 0, 100_000 - ago * 1000, 1.0))
    found = assess(gaining, NOW, LIMITS)
    assert (found.rate_in, found.rate_counted, found.caught_up_in) == (100, 300, 50)
    losing = over(13, lambda ago: Sample(NOW, 90_000 - ago * 1000, 0, 100_000 - ago * 3000, 1.0))
    assert assess(losing, NOW, LIMITS).caught_up_in is None
    once = assess([behind(0)], NOW, LIMITS)
    assert (once.rate_in, once.rate_counted, once.caught_up_in) == (None, None, 0)


def random_history(dice: random.Random) -> History:
    """A reader that runs, slows down, stops or moves back at random, with a random retention."""
    latest, position, earliest = NOW - dice.choice([0, 5, 40]), 100, 0
    end = position + dice.choice([0, 10, 5000])
    seconds, retention = dice.choice([0.0, 5.0, 50.0, 3000.0]), dice.choice([None, 300.0, 3600.0, 7 * DAY])
    batch_at, fixed_beginning = dice.choice([None, latest - 5000, latest]), dice.random() < 0.7
    step, arriving, pace = dice.choice([STEP, 12.5]), dice.choice([0, 1, 7, 90]), dice.choice([0, 1, 7, 90])
    topic_id, history = "old", list[Sample]()
    hidden = dice.choice([0, 0, 0, 1, 9])  # whether transactions are open, and how far from the end
    for ago in reversed(range(dice.choice([1, 2, 5, 7, 13, 62, 90]))):
        end += arriving
        pace = dice.choice([0, 1, 7, 90]) if dice.random() < 0.05 else pace
        position = max(0, position - 3) if dice.random() < 0.003 else max(position, min(end, position + pace))
        earliest = earliest if fixed_beginning or dice.random() < 0.8 else min(end, earliest + dice.choice([1, 5, 30]))
        seconds = 0.0 if position >= end else max(0.0, seconds + dice.choice([STEP, 5.0, 1.0, 0.0, -7.5, -100.0]))
        blind = "no topic" if dice.random() < 0.01 else ""
        topic_id = "new" if dice.random() < 0.003 else topic_id
        at = latest - ago * step
        found = Sample(at, position, earliest, end, seconds, batch_at, retention, topic_id, blind)
        history.append(replace(found, committed_end=hidden + end - 10 if hidden and dice.random() < 0.9 else None))
    return history


@hypothesis(max_examples=2000, deadline=None, database=None, derandomize=True)
@given(st.integers(0, 2**64))
def test_both_implementations_agree_on_random_histories(seed: int) -> None:
    history = random_history(random.Random(seed))
    limits = replace(LIMITS, backed=seed % 2 == 1, still=120.0 if seed % 3 else 310.0)
    found = assess(history, NOW, limits)
    assert (found.verdict, found.rule) == naive_lag.verdict(history, NOW, limits)


def test_random_histories_reach_every_rule() -> None:
    """If some rules were never reached, the comparison would prove little."""
    rules = [assess(random_history(random.Random(seed)), NOW, LIMITS).rule for seed in range(2000)]
    assert set(rules) == set(range(1, 13))
