"""A stream that stops for three log days: history recomputed meanwhile, no trace of the pause, rebuilds that agree."""

import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runtime import keeper
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.command_line import truelog
from tests.scenes.conftest import World
from tests.scenes.traffic import Traffic, in_the_log, page_views
from truelog.archive import archive_reader
from truelog.archive.archive_table import archived_positions
from truelog.batch import partials
from truelog.batch.partial_selection import select_partials
from truelog.batch.recompute import Recomputed
from truelog.log import ticks, topics
from truelog.log.positions import Positions
from truelog.reconcile.reconcile import ReconcileRequest
from truelog.schema.event import load_events
from truelog.serving import fallback_policy, serving_status
from truelog.serving.serving_status import ServingStatus
from truelog.spark.session import session
from truelog.storage import db_snapshot
from truelog.storage.database import connect
from truelog.support.errors import ArchiveBehind
from truelog.support.settings import Settings
from truelog.views.catalogue import VIEWS

DAY_SECONDS = 15
PAUSE, PANE = timedelta(seconds=60), timedelta(seconds=10)
RATE = 100  # events a second
FOLLOWED = ("page_views", "request_rates")


@dataclass(frozen=True)
class Pause:
    """What was seen of it."""

    began: datetime
    counted: datetime  # when the stream had caught up again
    days: list[datetime]  # log days that were closed since the scene began
    made: list[Recomputed]  # partials of those that were closed during the pause
    answered: "Answered"  # by the batch layer, while the stream was away
    read: list[tuple[str, int]]  # by somebody who asked all the time while it came back: layer, and page views


@dataclass(frozen=True)
class Answered:
    """What one reader got at one moment of the pause."""

    layer: ServingStatus
    positions: Positions
    minutes: dict[datetime, int]


@pytest.fixture(scope="module")
def short(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Short log days and few views, for these tests and for what they start."""
    folder = tmp_path_factory.mktemp("views")
    for view in FOLLOWED:
        shutil.copy(VIEWS / f"{view}.py", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUELOG_LOG_DAY_SECONDS", str(DAY_SECONDS))
        patch.setenv("TRUELOG_ARCHIVE_TRIGGER_SECONDS", "2")
        patch.setenv("TRUELOG_VIEWS_FOLDER", str(folder))
        yield Settings()


@pytest.fixture(scope="module")
def pause(world: World, short: Settings, archives: list[Application], _spark_ends: None) -> Pause:
    """The stream follows steady traffic, stops for as long as three log days, is started again and catches up."""
    seen = len(archive_reader.closed_days(short, ["page_view"]))
    keeper.stop(short, "ticks")  # an earlier scene's: here no day closes once all has been sent
    archiving, ticking = archive_anew(short, archives), start(short, str(Path(ticks.__file__)))
    with Traffic(short, seed=2, delay=1).arriving(RATE // 10, 0.1) as arrived:
        assert following(world).end() == 0
        began = datetime.now(UTC)
        made = recomputed_as_they_close(Batch(session(short, "tests")), archiving, seen, began)
        answered = answered_from_the_archive(world, short)
        archiving.wait(lambda: datetime.now(UTC) > began + PAUSE, 60, "the pause to be over")
        with reading(world) as read:
            stream = following(world)
        counted = datetime.now(UTC)
    assert arrived.per_second > 0.9 * RATE
    ticking.die()
    for view in FOLLOWED:
        world.catch_up(stream, view)
    assert stream.end() == 0
    archiving.wait(lambda: archived(world), 60, "the archive at the end of the log")
    days = archive_reader.closed_days(short, ["page_view"])[seen:]
    return Pause(began, counted, days, made, answered, read)


def archive_anew(short: Settings, archives: list[Application]) -> Application:
    """In the place of one whose log days are longer; later scenes go on with it."""
    for other in archives:
        other.die()
    archives.append(start(short, "archive.py"))
    archives[-1].kept = True
    return archives[-1]


def following(world: World) -> Application:
    stream = start(world.settings, "stream.py")
    for view in FOLLOWED:
        world.catch_up(stream, view)
    return stream


def recomputed_as_they_close(batch: Batch, archiving: Application, seen: int, since: datetime) -> list[Recomputed]:
    """Every day that closes after the first `seen`, until three that began after that moment are done."""
    made: list[Recomputed] = []

    def waiting() -> list[datetime]:
        return archive_reader.closed_days(batch.context.settings, ["page_view"])[seen + len(made) :]

    while sum(each.covered.day >= since for each in made) < 3:
        archiving.wait(lambda: bool(waiting()), 60, "a log day to close")
        made += [batch.recompute("page_views", day) for day in waiting()]
    return made


def answered_from_the_archive(world: World, short: Settings) -> Answered:
    """As the DAG `answers` has it done, which also asks for a view that there is not."""
    assert fallback_policy.views_due(short.model_copy(update={"batch_answer_seconds": 1.0})) == sorted(FOLLOWED)
    answering = start(short, "answer.py", *FOLLOWED, "nothing")
    assert answering.wait_death(120) == 0, answering.tail()
    assert world.ask("DELETE FROM truelog.batch_refusal RETURNING view, reason LIKE '%%no view%%'") == [
        ("nothing", True)
    ]
    [said] = [line for line in truelog("query", "page_views", "--limit", "1").stderr.splitlines() if "layer" in line]
    assert "page_views: batch layer, as of " in said
    with db_snapshot.read_snapshot(world.settings) as connection:
        told = serving_status.serving_statuses(connection)["page_views"]
        rows = connection.execute("SELECT minute, sum(views)::bigint FROM views.page_views GROUP BY minute").fetchall()
        at = fallback_policy.served_positions(connection, "page_views", 1)
    return Answered(told, at, {minute: int(str(n)) for minute, n in rows if isinstance(minute, datetime)})


@contextmanager
def reading(world: World) -> Iterator[list[tuple[str, int]]]:
    """Ask again and again, as long as the block lasts."""
    read: list[tuple[str, int]] = []
    over = threading.Event()
    asked = (
        "SELECT layer, (SELECT sum(views) FROM views.page_views)::bigint FROM truelog.answer WHERE view = 'page_views'"
    )

    def ask() -> None:
        while not over.wait(0.05):
            read.extend(world.ask(asked))

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        yield read
        over.set()
        asking.result()


def archived(world: World) -> bool:
    ends = topics.end_offsets(world.settings, load_events())
    return archived_positions(world.settings, load_events()).covers(ends)


def test_a_pause_leaves_neither_dip_nor_spike(world: World, pause: Pause, batch: Batch) -> None:
    """By the time of the events; what came in during it was counted in one go."""
    panes = list(between(pause.began - PANE, pause.counted - PANE / 2))
    assert len(panes) >= PAUSE / PANE
    told = Counter(
        datetime.fromtimestamp(event.occurred_at.timestamp() // PANE.seconds * PANE.seconds, UTC)
        for event in page_views(in_the_log(world.settings))
        if event.sent_at is None  # else the time of the event is another one
    )
    query = "SELECT pane, sum(requests)::bigint FROM views.request_rates WHERE pane >= %s AND pane <= %s GROUP BY pane"

    counted = dict(world.ask(query, panes[0], panes[-1]))

    assert counted == {pane: told[pane] for pane in panes}
    steady = RATE * PANE.seconds
    assert [n for n in counted.values() if not 0.5 * steady < n < 1.5 * steady] == []
    batch.require_equal_from_raw(FOLLOWED)


def test_meanwhile_the_batch_layer_answers_with_what_the_log_holds(world: World, pause: Pause) -> None:
    """To the record, as a naive reader of the log counts it up to there; and it says that it is the batch layer."""
    answered = pause.answered
    assert (answered.layer.layer, answered.layer.reason) == (serving_status.BATCH, "stream is not running")
    assert pause.began < (answered.layer.as_of or pause.began) < pause.counted
    events = page_views(in_the_log(world.settings, before=answered.positions.offsets["page_view"]))
    assert sum(answered.minutes.values()) == len(events)
    plain = Counter(e.occurred_at.replace(second=0, microsecond=0) for e in events if e.sent_at is None)
    here = [minute for minute in plain if minute > pause.began - PANE]
    assert {minute: answered.minutes[minute] for minute in here} == {minute: plain[minute] for minute in here}


def test_readers_come_back_by_themselves_and_never_see_less(pause: Pause) -> None:
    layers = [told for told, _ in pause.read]
    counts = [views for _, views in pause.read]
    assert layers == sorted(layers)  # batch, and from one moment on the stream
    assert set(layers) == {serving_status.BATCH, serving_status.STREAM}
    assert counts == sorted(counts)
    assert counts[0] == sum(pause.answered.minutes.values()) < counts[-1]


def between(begin: datetime, end: datetime) -> Iterator[datetime]:
    """The panes that begin after the one and end before the other."""
    pane = datetime.fromtimestamp((begin.timestamp() // PANE.seconds + 1) * PANE.seconds, UTC)
    while pane + PANE < end:
        yield pane
        pane += PANE


def test_rebuilds_stand_on_recomputed_days(world: World, pause: Pause, batch: Batch) -> None:
    made = pause.made
    assert [each.covered.begin for each in made[1:]] == [each.covered.end for each in made[:-1]]
    assert all(each.rows > 0 for each in made if each.covered.day >= pause.began)

    found = batch.reconcile("page_views")
    assert (found.verdict, found.missing, found.extra, found.different) == ("EQUAL", 0, 0, 0)
    assert found.rows > sum(each.rows for each in made) / len(made)
    known = partials.load(batch.context.settings, batch.compiled("page_views"))
    tiled = select_partials(known.ranges, replace(world.stands("page_views"), ids=found.positions.ids))
    assert [each.covered.day for each in made] == pause.days[: len(made)]
    assert {each.covered.day for each in made} <= {each.day for each in tiled.partials}


@pytest.mark.parametrize(
    "asked", [ReconcileRequest(audit=True), ReconcileRequest(from_raw=True, repair=True)], ids=["turn", "repair"]
)
def test_a_spoilt_day_is_seen_and_mended_from_the_raw_bytes(
    pause: Pause, batch: Batch, asked: ReconcileRequest
) -> None:
    """In the turn of that day, all others having been proved; or by a repair, which must last."""
    spoilt = pause.made[-1]
    settings, compiled = batch.context.settings, batch.compiled("page_views")
    known = partials.load(settings, compiled)
    others = [tile.day for tile in known.ranges if tile.day != spoilt.covered.day]
    proved = "INSERT INTO truelog.proof (view, version, day) SELECT 'page_views', 1, unnest(%s) ON CONFLICT DO NOTHING"
    with connect(settings) as connection:
        connection.execute(proved, (others,))
    rows = known.read(batch.spark, [spoilt.covered])
    assert rows is not None
    partials.replace(batch.spark, settings, compiled, spoilt.covered, rows.limit(0))

    found = batch.reconcile("page_views")
    assert found.verdict == "DIFFERENT"
    assert found.extra + found.different == spoilt.rows
    assert batch.reconcile("page_views", ReconcileRequest(from_raw=True)).equal

    mended = batch.reconcile("page_views", asked)
    assert mended.mended_days == (spoilt.covered.day.isoformat(),)
    assert mended.equal


def test_a_day_that_is_not_over_can_be_recomputed_by_hand(pause: Pause, batch: Batch) -> None:
    today = pause.days[-1] + timedelta(seconds=DAY_SECONDS)
    with pytest.raises(ArchiveBehind, match="still open"):
        batch.recompute("page_views", today)

    made = batch.recompute("page_views", today, unfinished=True)
    assert made.covered.end == archived_positions(batch.context.settings, ["page_view"])
    assert batch.reconcile("page_views").equal
