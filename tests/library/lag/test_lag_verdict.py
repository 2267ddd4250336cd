"""The verdict on a lag: a table of cases with the reason of each, and random histories against a second writing of it.

Several cases are known from Burrow, whose evaluator asks the same question of consumer groups: a quiet topic that was
reported as stopped, and a lag of 200,000 that never was reported, since it did not grow at every step.
"""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from tests.library import naive_lag
from truelog.lag.lag_verdict import LagVerdict, Limits, Sample, assess

NOW, STEP, DAY = 1_000_000.0, 10.0, 86_400.0
END, RATE = 1_000_000_000, 100
LIMITS = Limits(blind=30, fine=10, late=60, still=120, falling=6 * 3600)

History = list[Sample]


def over(polls: int, sample: Callable[[int], Sample]) -> History:
    """So many polls, the last of them just now; `sample` is told how many polls ago each was."""
    return [replace(sample(ago), at=NOW - ago * STEP) for ago in reversed(range(polls))]


def behind(seconds: float, ago: int = 0) -> Sample:
    """Of a reader that is so many seconds behind a log of a hundred records a second, kept for a week."""
    end = END - int(ago * STEP) * RATE
    return Sample(NOW, end - int(seconds * RATE), 0, end, seconds, batch_at=NOW, retention=7 * DAY)


def since(seconds: float) -> Callable[[int], Sample]:
    """It stands still, and has so many seconds to read by now."""
    return lambda ago: replace(behind(seconds - ago * STEP, ago), position=END - int(seconds) * RATE)


def dead(sample: Callable[[int], Sample]) -> Callable[[int], Sample]:
    """The same, and its application makes no batches."""
    return lambda ago: replace(sample(ago), batch_at=NOW - DAY)


def for_ever(sample: Callable[[int], Sample]) -> Callable[[int], Sample]:
    """The same in a topic that is kept for ever."""
    return lambda ago: replace(sample(ago), retention=None)


def quiet(_: int) -> Sample:
    """Nobody has sent anything for hours; the application makes no batches, for nothing wakes it."""
    return Sample(NOW, 500, 0, 500, batch_at=NOW - 7200)


def woken(ago: int) -> Sample:
    """The same, and a second ago a record came."""
    return quiet(ago) if ago else replace(quiet(ago), end=501, seconds=1.0)


def in_bulk(ago: int) -> Sample:
    """Up to fifty seconds behind, then not at all."""
    return behind((0, 50, 40, 30, 20, 10)[ago % 6], ago)


def dips(ago: int) -> Sample:
    """More than two minutes behind; a minute ago it had read everything for once, and stands still since."""
    return behind(150 if ago > 6 else (6 - ago) * STEP, ago)


def caught_up(ago: int) -> Sample:
    return behind(150 if ago > 7 else 0, ago)


def slow_since(polls: int) -> Callable[[int], Sample]:
    """It counts half of what comes, since so many polls."""
    return lambda ago: behind(max(0.0, (polls - ago) * 5.0), ago)


def falls_behind(ago: int) -> Sample:
    """It counts half of what comes, since two minutes; one poll found it nearer."""
    return behind({3: 35, 2: 45}.get(ago, max(0.0, (12 - ago) * 5.0)), ago)


def overrun(ago: int) -> Sample:
    """It counts half of what comes, since ten minutes; one poll found it nearer."""
    return behind(15 + (60 - ago) * 5.0 - (4 if ago == 5 else 0), ago)


def busier(ago: int) -> Sample:
    """Ever more traffic: ever more records to count, never more seconds."""
    end = 50 * (100 - ago) ** 2
    return replace(behind(9), position=end - 50 * (100 - ago), end=end)


def new(ago: int) -> Sample:
    """A new view on its way from the beginning of the log."""
    return behind(3 * DAY + ago * 3000, ago)


def on_the_edge(ago: int) -> Sample:
    """An hour before retention, and faster than it."""
    return behind(7 * DAY - 3600 + ago * 50, ago)


def begins(*moves: int) -> Callable[[int], Sample]:
    """It is half a minute behind a log whose beginning jumped at each of these polls."""
    jumped = [END - 2_000_000 + 400_000 * n for n in range(len(moves) + 1)]
    return lambda ago: replace(behind(30, ago), earliest=jumped[sum(ago <= move for move in moves)], retention=None)


def set_back(ago: int) -> Sample:
    return Sample(NOW, 100 if ago > 3 else 60 - ago, 0, 100, seconds=1.0)


def set_back_and_returned(ago: int) -> Sample:
    return Sample(NOW, 50 if ago == 3 else 100, 0, 100)


def made_again(ago: int) -> Sample:
    """Its topic was deleted and made anew half a minute ago, and the reader begins with it."""
    return Sample(NOW, 900, 0, 900, topic_id="old") if ago > 3 else Sample(NOW, 60 - ago, 0, 60, topic_id="new")


def passed(ago: int) -> Sample:
    """A new version reads the archive, days before where the log begins."""
    return replace(new(ago), earliest=END - 2 * int(DAY) * RATE, seconds=2 * DAY)


def overtaken(ago: int) -> Sample:
    """The same, and the log is cut again and again, as it is where its size decides."""
    return replace(passed(ago), earliest=END - int(2 * DAY + ago * STEP) * RATE, retention=None)


def passed_standing(ago: int) -> Sample:
    """It stands still where the log no longer reaches."""
    return replace(passed(ago), position=0)


CASES: list[tuple[str, History, str, int]] = [
    ("nothing was ever seen of it", [], "UNKNOWN", 1),
    ("the poller died a minute ago", [replace(behind(0), at=NOW - 60)], "UNKNOWN", 1),
    ("a poll or two may be missing", [replace(behind(0), at=NOW - 30)], "OK", 12),
    ("its topic was made anew", [Sample(NOW, blind="page_view was made again")], "UNKNOWN", 1),
    ("a poll that saw nothing is no rewind", [Sample(NOW - 1, END + 1, blind="no topic"), behind(0)], "OK", 12),
    ("retention took what it had not read", [replace(behind(60), earliest=END - 5000)], "FALLING_OFF", 2),
    ("retention took what it had read", [replace(behind(60), earliest=END - 6000)], "UNKNOWN", 8),
    ("retention took everything, all of it read", [replace(behind(0), earliest=END)], "OK", 12),
    ("it was set back, little as it lags", over(60, set_back), "REWIND", 3),
    ("it came back to where it had been", over(60, set_back_and_returned), "OK", 12),
    ("its topic was made anew, and it reads the new one", over(60, made_again), "OK", 12),
    ("the log was cut behind it", over(9, lambda _: Sample(NOW, 100, 0, 90)), "REWIND", 3),
    ("stopped, and an hour from the edge", over(60, dead(since(7 * DAY - 3600))), "FALLING_OFF", 4),
    ("stopped, and a day from the edge", over(60, dead(since(6 * DAY))), "STOP", 6),
    ("an hour from the edge, and faster", over(60, on_the_edge), "WARN", 10),
    ("an hour from the edge, seen once: taken to stand", [behind(7 * DAY - 3600)], "FALLING_OFF", 4),
    ("past its retention, there by luck", over(60, lambda ago: behind(7 * DAY + 9, ago)), "FALLING_OFF", 4),
    ("a log of a minute is no emergency", [replace(behind(20), retention=60.0)], "UNKNOWN", 8),
    ("kept for ever, nothing falls off", over(60, for_ever(since(90 * DAY))), "STALL", 7),
    ("the log's beginning flows towards it", over(60, begins(50, 35, 20, 5)), "FALLING_OFF", 5),
    ("the log's beginning jumped once", over(60, begins(30)), "OK", 12),
    ("nobody runs it", over(60, dead(since(900))), "STOP", 6),
    ("nobody ever ran it", over(60, lambda ago: replace(since(900)(ago), batch_at=None)), "STOP", 6),
    ("other views go on, this one does not", over(60, since(900)), "STALL", 7),
    ("a restart within its patience", over(60, dead(lambda ago: since(50)(min(ago, 5)))), "WARN", 11),
    ("a quiet topic has not stopped (Burrow's false alarm)", over(60, quiet), "OK", 12),
    ("quiet for hours, then one record", over(60, woken), "OK", 12),
    ("seen for ten seconds, and behind", over(2, lambda ago: behind(30, ago)), "UNKNOWN", 8),
    ("seen for ten seconds, and caught up", over(2, lambda ago: behind(0, ago)), "OK", 12),
    ("it counts half of what comes", over(61, overrun), "UNDERPROVISIONED", 9),
    ("the same, seen for two minutes only", over(13, overrun), "WARN", 10),
    ("200,000 behind, and no more (Burrow is silent)", over(60, lambda ago: behind(2000, ago)), "WARN", 10),
    ("one dip to nothing (Burrow is silent)", over(60, dips), "WARN", 10),
    ("the dip is now", [*over(60, dips)[:-6], replace(behind(0), at=NOW)], "WARN", 10),
    ("caught up for more than a minute", over(60, caught_up), "OK", 12),
    ("a new view, fast and days behind", over(60, new), "WARN", 10),
    ("it falls behind, with a dip", over(60, falls_behind), "WARN", 11),
    ("a little behind, and no farther", over(60, lambda ago: behind(30, ago)), "OK", 12),
    ("it reads in bulk", over(60, in_bulk), "OK", 12),
    ("more traffic, not more seconds", over(60, busier), "OK", 12),
]


@pytest.mark.parametrize(("seen", "verdict", "rule"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_verdict_where(seen: History, verdict: str, rule: int) -> None:
    found = assess(seen, NOW, LIMITS)
    assert (found.verdict, found.rule) == (verdict, rule), found.reason
    assert found.reason
    assert naive_lag.verdict(seen, NOW, LIMITS) == (verdict, rule)


FROM_THE_ARCHIVE: list[tuple[str, History, str, int]] = [
    ("retention took what it had not read: the archive has it", over(60, passed), "WARN", 10),
    ("the log's beginning flows on before it", over(60, overtaken), "WARN", 10),
    ("past its retention, there by luck", over(60, lambda ago: behind(7 * DAY + 9, ago)), "WARN", 10),
    ("the log has passed it, and drops more soon", [replace(passed(0), seconds=7 * DAY - 60)], "UNKNOWN", 8),
    ("nobody runs it, and the log has passed it", over(60, dead(passed_standing)), "STOP", 6),
    ("about to read from the archive", over(60, dead(since(7 * DAY - 3600))), "FALLING_OFF", 4),
]


@pytest.mark.parametrize(
    ("seen", "verdict", "rule"), [case[1:] for case in FROM_THE_ARCHIVE], ids=[case[0] for case in FROM_THE_ARCHIVE]
)
def test_the_verdict_on_a_reader_that_the_archive_backs(seen: History, verdict: str, rule: int) -> None:
    limits = replace(LIMITS, backed=True)
    found = assess(seen, NOW, limits)
    assert (found.verdict, found.rule) == (verdict, rule), found.reason
    assert naive_lag.verdict(seen, NOW, limits) == (verdict, rule)


@pytest.mark.parametrize(("sample", "verdict"), [(since(1500), "STALL"), (dead(since(1500)), "STOP")])
def test_the_window_is_as_long_as_patience_needs(sample: Callable[[int], Sample], verdict: str) -> None:
    """With an archive's trigger of ten minutes, say."""
    limits = replace(LIMITS, still=720.0, late=5000.0)
    seen = over(150, sample)
    assert assess(seen, NOW, limits).verdict == naive_lag.verdict(seen, NOW, limits)[0] == verdict


def test_every_verdict_and_every_rule_has_a_case() -> None:
    assert {case[2] for case in CASES} == set(LagVerdict)
    assert {case[3] for case in CASES} == set(range(1, 13))


def test_a_reader_slower_than_its_input_is_warned_of_within_two_minutes() -> None:
    """From the poll on after which it counts half of what comes."""
    verdicts = [assess(over(60, slow_since(polls)), NOW, LIMITS).verdict for polls in range(40)]
    warned = verdicts.index(LagVerdict.WARN)
    assert warned * STEP <= 120
    assert set(verdicts[:warned]) == {"OK"}
    assert set(verdicts[warned:]) == {"WARN"}


def test_rates_and_the_time_until_it_has_caught_up() -> None:
    """Ten thousand records are missing; in one history three count for each that comes, in the other one for three."""
    gains = over(13, lambda ago: Sample(NOW, 90_000 - ago * 3000, 0, 100_000 - ago * 1000, 1.0))
    found = assess(gains, NOW, LIMITS)
    assert (found.came, found.counted, found.caught_up_in) == (100, 300, 50)
    loses = over(13, lambda ago: Sample(NOW, 90_000 - ago * 1000, 0, 100_000 - ago * 3000, 1.0))
    assert assess(loses, NOW, LIMITS).caught_up_in is None
    once = assess([behind(0)], NOW, LIMITS)
    assert (once.came, once.counted, once.caught_up_in) == (None, None, 0)


def random_history(dice: random.Random) -> History:
    """A reader with its moods: it runs, crawls, stands and is set back, while retention does what it likes."""
    latest, position, earliest = NOW - dice.choice([0, 5, 40]), 100, 0
    end = position + dice.choice([0, 10, 5000])
    seconds, retention = dice.choice([0.0, 5.0, 50.0, 3000.0]), dice.choice([None, 300.0, 3600.0, 7 * DAY])
    batch_at, kept = dice.choice([None, latest - 5000, latest]), dice.random() < 0.7
    step, came, pace = dice.choice([STEP, 12.5]), dice.choice([0, 1, 7, 90]), dice.choice([0, 1, 7, 90])
    topic_id, seen = "old", list[Sample]()
    for ago in reversed(range(dice.choice([1, 2, 5, 7, 13, 62, 90]))):
        end += came
        pace = dice.choice([0, 1, 7, 90]) if dice.random() < 0.05 else pace
        position = max(0, position - 3) if dice.random() < 0.003 else max(position, min(end, position + pace))
        earliest = earliest if kept or dice.random() < 0.8 else min(end, earliest + dice.choice([1, 5, 30]))
        seconds = 0.0 if position >= end else max(0.0, seconds + dice.choice([STEP, 5.0, 1.0, 0.0, -7.5, -100.0]))
        blind = "no topic" if dice.random() < 0.01 else ""
        topic_id = "new" if dice.random() < 0.003 else topic_id
        at = latest - ago * step
        seen.append(Sample(at, position, earliest, end, seconds, batch_at, retention, topic_id, blind))
    return seen


@hypothesis(max_examples=2000, deadline=None, database=None, derandomize=True)
@given(st.integers(0, 2**64))
def test_random_histories_are_judged_alike(seed: int) -> None:
    seen = random_history(random.Random(seed))
    limits = replace(LIMITS, backed=seed % 2 == 1, still=120.0 if seed % 3 else 310.0)
    found = assess(seen, NOW, limits)
    assert (found.verdict, found.rule) == naive_lag.verdict(seen, NOW, limits)


def test_random_histories_reach_every_rule() -> None:
    """Else the comparison would prove little."""
    rules = [assess(random_history(random.Random(seed)), NOW, LIMITS).rule for seed in range(2000)]
    assert set(rules) == set(range(1, 13))
