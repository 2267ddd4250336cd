"""Buggy code is deployed, found and mended. The new version is built beside the old one, compared, and shown."""

import json
import logging
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.beds.world import World, known
from tests.command import answer, shared_spark, truelog, truelog_process
from tests.deadline import deadline
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.moved_readers import by_sql, polling
from truelog.archive.table import archived_positions
from truelog.history import explain_question
from truelog.history.explain import explain
from truelog.history.explain_question import Question
from truelog.log import topics
from truelog.storage.database import connect
from truelog.support.settings import Settings
from truelog.versions.build import build_version
from truelog.versions.cut_over import back, cut_over

log = logging.getLogger("truelog.jobs")
NAME, URL = "waits", "https://story.example/slow"
MILLISECONDS = (1_900, 700, 2_500)
VIEW = '''"""How long visitors waited for each page."""
from pyspark.sql import DataFrame, functions as F
from truelog import Sum, View

def transform(page_view: DataFrame) -> DataFrame:
    return page_view.select("url", F.expr("{waited}").alias("waited"), F.lit(1).alias("views"))

VIEW = View(
    reads=("page_view",), transform=transform, key=("url",), measures={{"waited": Sum(), "views": Sum()}}{more}
)
'''
MOVES = 10  # and as many back
BUG, FIX = "response_ms div 1000", "response_ms"  # the bug drops the fraction of each second


@pytest.fixture
def deployed(world: World, tmp_path: Path) -> Iterator[Settings]:
    """The platform with only the view, whose code has a bug."""
    (tmp_path / f"{NAME}.py").write_text(VIEW.format(waited=BUG, more=""))
    with known(world.settings, views_folder=tmp_path) as settings:
        yield settings


def send(settings: Settings) -> None:
    producer = Producer(settings.kafka())
    for number, milliseconds in enumerate(MILLISECONDS):
        event: dict[str, Any] = {
            "event_id": f"story-{number}",
            "occurred_at": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        }
        event |= {"visitor_id": "v", "url": URL, "response_ms": milliseconds}
        producer.produce("page_view", json.dumps(event).encode(), b"v")
    assert producer.flush(deadline(30)) == 0


def waited(world: World) -> list[int]:
    if world.ask("SELECT to_regclass(%s)", f"views.{NAME}") == [(None,)]:
        return []
    return [int(found) for (found,) in world.ask(f"SELECT waited FROM views.{NAME} WHERE url = %s", URL)]


def state(world: World) -> str:
    [(found,)] = world.ask("SELECT state FROM truelog.standing WHERE view = %s AND declared", NAME) or [("",)]
    return str(found)


def asked(settings: Settings) -> Any:
    """The same answer from the job of the explain page, stored in the database."""
    question = Question(NAME, (f"url={URL}",))
    began = time.monotonic()
    assert start(settings, "explain.py", NAME, "--", *question.where).wait_death(120) == 0
    log.info("the job of an explanation: %.1f s", time.monotonic() - began)
    with connect(settings) as connection:
        found = explain_question.newest_answer(connection, question)
        assert found is not None
        stored = explain_question.find_answer(connection, found.id)
    assert stored is not None
    return stored[1]


def logged(event: dict[str, Any]) -> int:
    """What the archive says about an event of an explanation."""
    place = f'partition = {event["partition"]} AND "offset" = {event["offset"]}'
    [row] = answer("sql", f"SELECT response_ms FROM page_view WHERE {place}")["rows"]
    return int(row["response_ms"])


def require_contradicted(deployed: Settings) -> None:
    """A comparison cannot see the bug, because the rebuild has it too. The events contradict the row."""
    with shared_spark():
        wrong = answer("explain", NAME, f"url={URL}")
    assert (wrong["verdict"], wrong["total"], wrong["rebuilt"]) == ("EQUAL", 3, [{"url": URL, "waited": 3, "views": 3}])
    stored = asked(deployed)
    assert {name: stored[name] for name in wrong if name != "cost"} == {n: wrong[n] for n in wrong if n != "cost"}
    added = [(logged(event), event["adds"][0]["row"]["waited"]) for event in wrong["events"]]
    assert added == [(1_900, 1), (700, 0), (2_500, 2)]


@pytest.mark.nightly
def test_a_bug_is_deployed_found_fixed_and_cut_over(
    world: World, deployed: Settings, archive: Application, batch: Batch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stream = start(deployed, "stream.py")
    stream.wait(lambda: state(world) == "UP_TO_DATE", 90, "the view")
    world.traffic.send(100)
    send(deployed)
    stream.wait(lambda: waited(world) == [3], 60, "the wrong row")
    require_archived(world, archive)

    assert batch.reconcile(NAME).equal
    require_contradicted(deployed)

    # Under the same version, the fix is refused, and readers keep the rows.
    file = deployed.views_folder / f"{NAME}.py"
    file.write_text(VIEW.format(waited=FIX, more=""))
    stream.wait(lambda: state(world) == "STALLED", 60, "the refusal")
    assert waited(world) == [3]

    require_replayed(tmp_path_factory.mktemp("replays"))
    assert waited(world) == [3]

    # As a new version, it is built beside the wrong one, which goes on for its readers.
    file.write_text(VIEW.format(waited=FIX, more=", version=2"))
    require_built(world, deployed, stream, archive, batch)
    require_compared()
    require_moved(world, deployed, stream, tmp_path_factory.mktemp("faults"))
    stream.wait(lambda: state(world) == "UP_TO_DATE", 60, "the new version")
    require_archived(world, archive)
    assert batch.recompute(NAME, world.newest_log_day(), unfinished=True).rows > 0
    assert batch.reconcile(NAME).equal
    batch.require_equal_from_raw([NAME])
    right = explain(batch.context, batch.compiled(NAME), {"url": URL}).as_dict()
    assert (right["version"], right["verdict"], right["streamed"][0]["waited"]) == (2, "EQUAL", 3 * sum(MILLISECONDS))
    assert [event["rows"][0]["waited"] for event in right["events"]][:3] == [1_900, 2_600, 5_100]
    assert stream.end() == 0


def require_replayed(folder: Path) -> None:
    """A replay shows what the mended code would change. One that was killed is listed, and replaced."""
    name, mended = f"{NAME}_replay", folder / "mended.py"
    mended.write_text(VIEW.format(waited=FIX, more=""))
    require_killed(folder, "replay.staged", "replay", NAME, "--code", str(mended))
    [killed] = answer("replays", "list")["replays"]
    assert (killed["name"], killed["state"]) == (name, "abandoned")

    with shared_spark():
        found = answer("replay", NAME, "--code", str(mended))["difference"]
    assert (found["one"], found["other"], found["missing"], found["extra"]) == (1, name, 0, 0)
    assert found["columns"] == {"waited": found["different"]}
    wrong = next(each for each in found["sample"] if each["one"]["url"] == URL)
    assert (wrong["one"]["waited"], wrong["other"]["waited"]) == (3, sum(MILLISECONDS))
    assert answer("replays", "drop", name) == {"dropped": name}


def stages() -> list[str]:
    return [each["stage"] for each in answer("versions", "list", NAME)["versions"]]


def pinned(world: World, version: int) -> list[int]:
    return [int(found) for (found,) in world.ask(f"SELECT waited FROM views.{NAME}_v{version} WHERE url = %s", URL)]


def require_built(world: World, settings: Settings, stream: Application, archive: Application, batch: Batch) -> None:
    """A job that is killed builds nothing. Another one fills the version, the stream takes it over, and it is EQUAL."""
    stream.wait(lambda: "BUILDING" in stages(), 60, "the new version without a stream")
    assert "is not built yet" in truelog("versions", "cut-over", NAME).stderr
    send(settings)
    stream.wait(lambda: waited(world) == [6], 60, "the wrong version to go on from its stored code")
    require_archived(world, archive)
    start(settings, "cut_over.py", NAME, fault="version.filled:1:kill").wait_kill()
    assert stages() == ["SERVING", "BUILDING"]
    built = build_version(batch.context, batch.compiled(NAME), log.info, moves=False, doer="test")
    assert (built.filled, built.verdict, built.moved, built.reason) == (True, "EQUAL", False, "")
    assert stages() == ["SERVING", "READY"]
    assert waited(world) == [6], "readers do not move by themselves"
    assert pinned(world, 2) == [2 * sum(MILLISECONDS)]


def require_compared() -> None:
    """Before readers move, they can see which rows differ."""
    found = answer("versions", "diff", NAME, exit_code=1)
    assert (found["one"], found["other"], found["missing"], found["extra"]) == (1, 2, 0, 0)
    assert found["columns"] == {"waited": found["different"]}
    wrong = next(each for each in found["sample"] if each["one"]["url"] == URL)
    assert (wrong["one"]["waited"], wrong["other"]["waited"]) == (6, 2 * sum(MILLISECONDS))
    assert found["apart"] == 0


def require_moved(world: World, settings: Settings, stream: Application, faults: Path) -> None:
    """Readers move in one step, whatever point a cut-over is killed at, and back, and again."""
    moved = 2 * sum(MILLISECONDS)
    for point, readers in (("cut_over.locked", 6), ("cut_over.shown", 6), ("cut_over.committed", moved)):
        assert waited(world) == [6]
        require_killed(faults, point, "versions", "cut-over", NAME)
        assert waited(world) == [readers], "readers see one version or the other"
    assert stages() == ["FORMER", "SERVING"]
    send(settings)  # both versions go on, so the way back leads to fresh rows
    stream.wait(lambda: waited(world) == [3 * sum(MILLISECONDS)], 60, "the new version")
    stream.wait(lambda: pinned(world, 1) == [9], 60, "the former version")
    assert answer("versions", "back", NAME) == {"view": NAME, "version": 1, "former": 2}
    assert waited(world) == [9]
    require_unnoticed_moves(world, settings)
    assert answer("versions", "cut-over", NAME) == {"view": NAME, "version": 2, "former": 1}


def require_killed(folder: Path, point: str, *words: str) -> None:
    """Kill a command at a named point."""
    fired = folder / point
    ended = truelog_process(*words, TRUELOG_FAULT=f"{point}:1:kill", TRUELOG_FAULT_FIRED=str(fired))
    assert (ended.returncode, fired.exists()) == (-signal.SIGKILL, True), ended.stderr


def require_unnoticed_moves(world: World, settings: Settings) -> None:
    """Readers move back and forth under traffic. A polling reader sees each row once, and never an older row."""
    with world.traffic.arriving(50, 0.1), polling(settings, NAME, by_sql) as polls:
        for _ in range(MOVES):
            cut_over(settings, NAME, doer="test")
            back(settings, NAME, doer="test")
    assert min(polls) > MOVES, "the reader has looked less often than readers have moved"


def require_archived(world: World, archive: Application) -> None:
    ends = topics.end_offsets(world.settings, ["page_view"])
    archive.wait(lambda: archived_positions(world.settings, ["page_view"]).covers(ends), 60, "the archive")
