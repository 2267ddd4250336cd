"""Readers move a hundred times under 500 events a second. SQL and the API show each row once, and give no error."""

import time
from pathlib import Path

import pytest

import runtime
from tests.beds.world import World, known
from tests.command import answer
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.moved_readers import by_api, by_sql, polling
from tests.speed import record_speed
from truelog.archive.table import archived_positions
from truelog.log import topics
from truelog.versions.build import build_version
from truelog.versions.cut_over import back, cut_over

NAME = "counted_urls"
VIEW = '''"""How often each page was viewed."""
from pyspark.sql import DataFrame, functions as F
from truelog import Sum, View

def transform(page_view: DataFrame) -> DataFrame:
    return page_view.select("url", F.lit(1).alias("views"))

VIEW = View(reads=("page_view",), transform=transform, key=("url",), measures={{"views": Sum()}}, version={version})
'''
MOVES = 50  # and as many back
RATE, TENTH = 500, 0.1  # events a second, and the seconds between two sendings


def stages() -> list[str]:
    return [each["stage"] for each in answer("versions", "list", NAME)["versions"]]


@pytest.mark.nightly
def test_a_hundred_moves_under_five_hundred_events_a_second(
    world: World, archive: Application, batch: Batch, tmp_path: Path
) -> None:
    file = tmp_path / f"{NAME}.py"
    file.write_text(VIEW.format(version=1))
    with known(world.settings, views_folder=tmp_path) as settings:
        stream = start(settings, "stream.py")
        world.traffic.send(5_000)
        world.catch_up(stream, NAME)
        ends = topics.end_offsets(settings, ["page_view"])
        archive.wait(lambda: archived_positions(settings, ["page_view"]).covers(ends), 60, "the archive")
        file.write_text(VIEW.format(version=2))
        stream.wait(lambda: "BUILDING" in stages(), 60, "the second version")
        built = build_version(batch.context, batch.compiled(NAME), print, moves=False, doer="test")
        assert (built.verdict, built.reason) == ("EQUAL", "")

        runtime.up(settings, ["api"], tethered=True)
        with world.traffic.arriving(int(RATE * TENTH), TENTH) as sent, polling(settings, NAME, by_sql, by_api) as polls:
            world.catch_up(stream, NAME)
            began = time.monotonic()
            for _ in range(MOVES):
                cut_over(settings, NAME, doer="test")
                back(settings, NAME, doer="test")
            record_speed("a move of the readers under 500 events/s", (time.monotonic() - began) / (2 * MOVES))
        assert sent.per_second > 0.9 * RATE, "the traffic was slower than the test says"
        assert min(polls) > 2 * MOVES, f"a reader has looked less often than readers have moved: {polls}"
        record_speed("polls of SQL and the API during the moves", sum(polls), "")

        world.catch_up(stream, NAME)
        world.require_total(NAME)
        assert batch.reconcile(NAME).equal
        assert stream.end() == 0
