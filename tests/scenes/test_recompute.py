"""A stream pauses for three log days, which are recomputed. Views show no trace of the pause, and rebuilds agree."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.beds.world import World
from tests.builders.comparisons import a_proof
from tests.chosen_views import copy_views
from tests.command import truelog
from tests.meanwhile import meanwhile
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.traffic import Traffic, in_the_log, page_views
from tests.speed import record_speed
from truelog.archive import reader as archive_reader
from truelog.archive.table import archived_positions
from truelog.batch import partials
from truelog.batch.partial_selection import select_partials
from truelog.batch.recompute import Recomputed
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.reconcile import certificate_store
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.schema.loading.events import load_events
from truelog.services.ticks import service as ticks
from truelog.serving import fallback_policy
from truelog.serving import status as serving_status
from truelog.serving.status import ServingStatus
from truelog.spark.session import session
from truelog.storage import db_snapshot
from truelog.storage.database import connect
from truelog.support.errors import ArchiveBehind
from truelog.support.settings import Settings

pytestmark = pytest.mark.nightly

DAY_SECONDS = 10
PAUSED_DAYS = 3  # log days that begin and end during the pause
PANE = timedelta(seconds=10)
STREAMED = ("page_views", "request_rates")


@dataclass(frozen=True)
class Pause:
    """What was observed during and after the pause."""

    began: datetime
    counted: datetime  # when the stream had caught up
    days: list[datetime]  # log days that closed after the scene began
    recomputed: list[Recomputed]  # partials of the days that closed during the pause
    fallback: "Fallback"  # from the batch layer, while the stream was stopped
    reads: list[tuple[str, int]]  # layer and page views, polled while the stream was restarting


@dataclass(frozen=True)
class Fallback:
    """What a reader got at one moment during the pause."""

    status: ServingStatus
    positions: Positions
    minutes: dict[datetime, int]


@pytest.fixture(scope="module")
def short(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Short log days and few views, for these tests and the processes that they start."""
    folder = copy_views(tmp_path_factory.mktemp("views"), *STREAMED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUELOG_LOG_DAY_SECONDS", str(DAY_SECONDS))
        patch.setenv("TRUELOG_ARCHIVE_TRIGGER_SECONDS", "2")
        patch.setenv("TRUELOG_VIEWS_FOLDER", str(folder))
        yield Settings()


@pytest.fixture(scope="module")
def pause(world: World, short: Settings, archives: list[Application], spark_session: None) -> Pause:
    """The stream processes steady traffic, stops for three log days, starts again and catches up."""
    closed_before = len(archive_reader.closed_days(short, ["page_view"]))
    archiving, ticking = restart_archive(short, archives), start(short, str(Path(ticks.__file__)))
    with Traffic(short, seed=2, delay=1).arriving(10, 0.1) as arrived:
        assert start_stream(world).end() == 0
        began = datetime.now(UTC)
        recomputed = recompute_closed_days(Batch(session(short, "tests")), archiving, closed_before, began)
        fallback = build_fallback(world, short)
        with polling(world) as reads:
            stream = start_stream(world)
            stream.wait(lambda: reads[-1][0] == serving_status.STREAM, 90, "readers to return to the stream")
        counted = datetime.now(UTC)
    record_speed("traffic of the scene with a pause", arrived.per_second, "events/s")
    ticking.die()
    for view in STREAMED:
        world.catch_up(stream, view)
    assert stream.end() == 0
    archiving.wait(lambda: archived(world), 60, "the archive at the end of the log")
    days = archive_reader.closed_days(short, ["page_view"])[closed_before:]
    return Pause(began, counted, days, recomputed, fallback, reads)


def restart_archive(short: Settings, archives: list[Application]) -> Application:
    """Replace an archive with longer log days; later scenes continue with the new archive."""
    for other in archives:
        other.die()
    archives.append(start(short, "archive.py"))
    archives[-1].kept = True
    return archives[-1]


def start_stream(world: World) -> Application:
    stream = start(world.settings, "stream.py")
    for view in STREAMED:
        world.catch_up(stream, view)
    return stream


def recompute_closed_days(batch: Batch, archiving: Application, skip: int, since: datetime) -> list[Recomputed]:
    """Recompute every day that closes after the first `skip`, until enough days that began after `since` are done."""
    recomputed: list[Recomputed] = []

    def waiting() -> list[datetime]:
        return archive_reader.closed_days(batch.context.settings, ["page_view"])[skip + len(recomputed) :]

    while sum(each.covered.day >= since for each in recomputed) < PAUSED_DAYS:
        archiving.wait(lambda: bool(waiting()), 60, "a log day to close")
        recomputed += [batch.recompute("page_views", day) for day in waiting()]
    return recomputed


def build_fallback(world: World, short: Settings) -> Fallback:
    """Build fallbacks as the `answers` DAG does, including a request for an unknown view."""
    assert fallback_policy.views_due(short.model_copy(update={"batch_answer_seconds": 1.0})) == sorted(STREAMED)
    world.poll_archive()
    building = start(short, "answer.py", *STREAMED, "nothing")
    assert building.wait_death(120) == 0, building.tail()
    assert world.ask("DELETE FROM truelog.batch_refusal RETURNING view, reason LIKE '%%no view%%'") == [
        ("nothing", True)
    ]
    [notice] = [line for line in truelog("query", "page_views", "--limit", "1").stderr.splitlines() if "layer" in line]
    assert "page_views: batch layer, as of " in notice
    with db_snapshot.read_snapshot(world.settings) as connection:
        status = serving_status.serving_statuses(connection)["page_views"]
        rows = connection.execute("SELECT minute, sum(views)::bigint FROM views.page_views GROUP BY minute").fetchall()
        at = fallback_policy.served_positions(connection, "page_views", 2)
    return Fallback(status, at, {minute: int(str(n)) for minute, n in rows if isinstance(minute, datetime)})


@contextmanager
def polling(world: World) -> Iterator[list[tuple[str, int]]]:
    """Read the view's layer and its page views repeatedly while the block is running."""
    reads: list[tuple[str, int]] = []
    query = (
        "SELECT layer, (SELECT sum(views) FROM views.page_views)::bigint FROM truelog.answer WHERE view = 'page_views'"
    )

    def poll(ended: threading.Event) -> None:
        while not ended.wait(0.05):
            reads.extend(world.ask(query))

    with meanwhile(poll):
        yield reads


def archived(world: World) -> bool:
    ends = topics.end_offsets(world.settings, load_events())
    return archived_positions(world.settings, load_events()).covers(ends)


def test_a_pause_leaves_neither_dip_nor_spike(world: World, pause: Pause, batch: Batch) -> None:
    """Rows have the counts of their event times, although the pause's events were all counted at the same time."""
    expected = Counter(
        datetime.fromtimestamp(event.occurred_at.timestamp() // PANE.seconds * PANE.seconds, UTC)
        for event in page_views(in_the_log(world.settings))
        if event.sent_at is None  # otherwise its event time differs
    )
    panes = [pane for pane in between(pause.began - PANE, pause.counted - PANE / 2) if expected[pane]]
    assert len(panes) >= PAUSED_DAYS
    query = "SELECT pane, sum(requests)::bigint FROM views.request_rates WHERE pane >= %s AND pane <= %s GROUP BY pane"

    counted = dict(world.ask(query, panes[0], panes[-1]))

    assert counted == {pane: expected[pane] for pane in panes}
    batch.require_equal_from_raw(STREAMED)


def test_during_the_pause_the_batch_layer_serves_the_logs_content(world: World, pause: Pause) -> None:
    """The counts equal a naive log reader's counts, and the status shows the batch layer."""
    fallback = pause.fallback
    assert (fallback.status.layer, fallback.status.reason) == (serving_status.BATCH, "stream is not running")
    assert pause.began < (fallback.status.as_of or pause.began) < pause.counted
    events = page_views(in_the_log(world.settings, before=fallback.positions.offsets["page_view"]))
    assert sum(fallback.minutes.values()) == len(events)
    expected = Counter(e.occurred_at.replace(second=0, microsecond=0) for e in events if e.sent_at is None)
    here = [minute for minute in expected if minute > pause.began - PANE]
    assert {minute: fallback.minutes[minute] for minute in here} == {minute: expected[minute] for minute in here}


def test_readers_return_to_the_stream_and_never_see_fewer_events(pause: Pause) -> None:
    layers = [layer for layer, _ in pause.reads]
    counts = [views for _, views in pause.reads]
    assert layers == sorted(layers)  # first batch, then stream
    assert set(layers) == {serving_status.BATCH, serving_status.STREAM}
    assert counts == sorted(counts)
    assert counts[0] == sum(pause.fallback.minutes.values()) < counts[-1]


def between(begin: datetime, end: datetime) -> Iterator[datetime]:
    """The panes that begin after `begin` and end before `end`."""
    pane = datetime.fromtimestamp((begin.timestamp() // PANE.seconds + 1) * PANE.seconds, UTC)
    while pane + PANE < end:
        yield pane
        pane += PANE


def test_rebuilds_use_recomputed_days(world: World, pause: Pause, batch: Batch) -> None:
    made = pause.recomputed
    assert [each.covered.begin for each in made[1:]] == [each.covered.end for each in made[:-1]]
    assert all(each.rows > 0 for each in made if each.covered.day >= pause.began)

    found = batch.reconcile("page_views")
    assert (found.verdict, found.missing, found.extra, found.different) == ("EQUAL", 0, 0, 0)
    assert found.rows > sum(each.rows for each in made) / len(made)
    known = partials.load_partials(batch.context.settings, batch.compiled("page_views").own)
    tiled = select_partials(known.ranges, replace(world.positions("page_views"), ids=found.positions.ids))
    assert [each.covered.day for each in made] == pause.days[: len(made)]
    assert {each.covered.day for each in made} <= {each.day for each in tiled.partials}


@pytest.mark.parametrize(
    "reconcile_request",
    [ReconcileRequest(audit=True), ReconcileRequest(from_raw=True, repair=True)],
    ids=["audit", "repair"],
)
def test_a_damaged_day_is_detected_and_rebuilt_from_raw_bytes(
    pause: Pause, batch: Batch, reconcile_request: ReconcileRequest
) -> None:
    """The day is rebuilt by its audit, after all other days were verified, or by a repair, which must be permanent."""
    damaged = pause.recomputed[-1]
    settings, compiled = batch.context.settings, batch.compiled("page_views")
    known = partials.load_partials(settings, compiled.own)
    with connect(settings) as connection:
        for each in known.ranges:
            if each.day != damaged.covered.day:
                a_proof(connection, "page_views", each, version=2)
    rows = known.read(batch.spark, [damaged.covered])
    assert rows is not None
    partials.replace(batch.spark, settings, compiled.own, damaged.covered, rows.limit(0))

    found = batch.reconcile("page_views")
    assert found.verdict == "DIFFERENT"
    assert found.extra + found.different == damaged.rows
    assert batch.reconcile("page_views", ReconcileRequest(from_raw=True)).equal

    repaired = batch.reconcile("page_views", reconcile_request)
    assert repaired.mended_days == (damaged.covered.day.isoformat(),)
    assert repaired.equal
    assert repaired.certificate is not None
    assert certificate_store.find_certificate(settings, repaired.certificate).proved_at is not None


def test_an_open_day_can_be_recomputed_by_hand(pause: Pause, batch: Batch) -> None:
    today = pause.days[-1] + timedelta(seconds=DAY_SECONDS)
    with pytest.raises(ArchiveBehind, match="still open"):
        batch.recompute("page_views", today)

    made = batch.recompute("page_views", today, unfinished=True)
    assert made.covered.end == archived_positions(batch.context.settings, ["page_view"])
    assert batch.reconcile("page_views").equal
