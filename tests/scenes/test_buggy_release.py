"""Buggy code is deployed, a wrong row is found and explained, and a new version replaces all rows. No event is lost."""

import json
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.beds.world import World, known
from tests.command import answer, process_answer
from tests.deadline import deadline
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from truelog.archive.table import archived_positions
from truelog.history import explain_question
from truelog.history.explain import explain
from truelog.history.explain_question import Question
from truelog.log import topics
from truelog.storage.database import connect
from truelog.support.settings import Settings

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
    [(found,)] = world.ask("SELECT state FROM truelog.standing WHERE view = %s", NAME) or [("",)]
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


def test_a_bug_is_deployed_found_fixed_and_recomputed(
    world: World, deployed: Settings, archive: Application, batch: Batch
) -> None:
    stream = start(deployed, "stream.py")
    stream.wait(lambda: state(world) == "UP_TO_DATE", 90, "the view")
    world.traffic.send(100)
    send(deployed)
    stream.wait(lambda: waited(world) == [3], 60, "the wrong row")
    require_archived(world, archive)

    # The comparison cannot see the bug, because the rebuild has it too. The events contradict the row.
    assert batch.reconcile(NAME).equal
    wrong = process_answer("explain", NAME, f"url={URL}")
    assert (wrong["verdict"], wrong["total"], wrong["rebuilt"]) == ("EQUAL", 3, [{"url": URL, "waited": 3, "views": 3}])
    stored = asked(deployed)
    assert {name: stored[name] for name in wrong if name != "cost"} == {n: wrong[n] for n in wrong if n != "cost"}
    added = [(logged(event), event["adds"][0]["row"]["waited"]) for event in wrong["events"]]
    assert added == [(1_900, 1), (700, 0), (2_500, 2)]

    # Under the same version, the fix is refused, and readers keep the rows.
    file = deployed.views_folder / f"{NAME}.py"
    file.write_text(VIEW.format(waited=FIX, more=""))
    stream.wait(lambda: state(world) == "STALLED", 60, "the refusal")
    assert waited(world) == [3]

    file.write_text(VIEW.format(waited=FIX, more=", version=2"))
    stream.wait(lambda: waited(world) == [sum(MILLISECONDS)], 90, "the new version at the end of the log")
    stream.wait(lambda: state(world) == "UP_TO_DATE", 60, "the new version")
    require_archived(world, archive)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    assert batch.recompute(NAME, today, unfinished=True).rows > 0
    assert batch.reconcile(NAME).equal
    batch.require_equal_from_raw([NAME])
    right = explain(batch.context, batch.compiled(NAME), {"url": URL}).as_dict()
    assert (right["version"], right["verdict"], right["streamed"][0]["waited"]) == (2, "EQUAL", sum(MILLISECONDS))
    assert [event["rows"][0]["waited"] for event in right["events"]] == [1_900, 2_600, 5_100]
    assert stream.end() == 0


def require_archived(world: World, archive: Application) -> None:
    ends = topics.end_offsets(world.settings, ["page_view"])
    archive.wait(lambda: archived_positions(world.settings, ["page_view"]).covers(ends), 60, "the archive")
