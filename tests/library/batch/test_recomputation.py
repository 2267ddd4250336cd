"""The progress of a recompute, and views that fail beside others."""

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from truelog.batch import recomputation
from truelog.batch import recompute as module
from truelog.batch.partial_selection import PartialRange
from truelog.batch.recomputation import DayState, Recomputation, States
from truelog.batch.recompute import Recomputed
from truelog.control.view_loader import LoadedViews
from truelog.log.positions import Positions
from truelog.storage.database import connect
from truelog.support.errors import ArchiveBehind
from truelog.support.settings import Settings

FIRST = datetime(2026, 11, 1, tzinfo=UTC)
DAYS = [FIRST + timedelta(days=number) for number in range(3)]
WAITING, RUNNING, DONE, FAILED = DayState


def recorded(progress: Recomputation) -> States:
    with connect(progress.settings) as connection:
        return recomputation.states(connection, [progress.attempt]).get(progress.attempt, {})


def test_each_attempt_has_states_of_its_own(postgresql: Settings) -> None:
    one, other = (Recomputation(postgresql, str(uuid4()), "a run") for _ in range(2))
    one.plan(["a", "b"], DAYS)
    other.plan(["a"], DAYS[:1])
    one.start("a", DAYS[0])
    one.finish("a", DAYS[0], 7)
    one.start("a", DAYS[1])
    assert recorded(one) == {"a": [DONE, RUNNING, WAITING], "b": [WAITING] * 3}
    assert recorded(other) == {"a": [WAITING]}
    one.refuse("a")
    assert recorded(one) == {"a": [DONE, FAILED, FAILED], "b": [WAITING] * 3}
    with connect(postgresql) as connection:
        found = connection.execute("SELECT keys FROM truelog.recomputation WHERE state = 'done'").fetchall()
    assert found == [(7,)]


def test_a_view_that_fails_does_not_hold_up_the_others(postgresql: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends at the day that fails. An unknown error names its type, and a known error is shown as it is."""
    errors = {("known", DAYS[1]): ArchiveBehind("the archive is behind"), ("unknown", DAYS[0]): ValueError("odd")}

    def recompute(context: Any, view: Any, day: datetime, *, unfinished: bool) -> Recomputed:
        if error := errors.get((view.name, day)):
            raise error
        return Recomputed(view.name, PartialRange(day, Positions(), Positions(), {}), 1)

    monkeypatch.setattr(module, "recompute", recompute)
    progress, reported = Recomputation.by_hand(postgresql), list[Recomputed]()
    names = ["known", "unknown", "fine"]
    progress.plan(names, DAYS)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda name, value: None))
    views = LoadedViews([cast(Any, SimpleNamespace(name=name)) for name in names])
    context: Any = SimpleNamespace(spark=spark, views=views, settings=postgresql)
    monkeypatch.setattr(module, "for_records", lambda context, records: nullcontext(context))
    outcome = module.recompute_views(context, progress, DAYS, reported.append, unfinished=False)
    assert outcome.refused == {"known": "the archive is behind", "unknown": "ValueError: odd"}
    assert recorded(progress) == {"known": [DONE, FAILED, FAILED], "unknown": [FAILED] * 3, "fine": [DONE] * 3}
    assert [(m.view, m.covered.day) for m in outcome.done] == [*(("fine", day) for day in DAYS), ("known", FIRST)]
    assert sorted(reported, key=lambda made: (made.view, made.covered.day)) == outcome.done
