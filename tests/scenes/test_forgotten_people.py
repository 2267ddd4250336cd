"""Two hundred people are forgotten under traffic. The views equal their rebuild, and nothing of the people is found."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.beds.world import World
from tests.chosen_views import copy_views
from tests.command import answer, shared_spark
from tests.library.forgetting.byte_search import places_with
from tests.scenes.applications import start
from tests.scenes.batch import Batch
from tests.scenes.traffic import Traffic, parsed
from truelog.archive.audit_evidence import run_audit
from truelog.archive.table import archived_positions
from truelog.log import topics
from truelog.storage.database import connect

pytestmark = pytest.mark.own_servers

VIEWS = ("page_audience", "sessions")
PEOPLE, NAME = 200, "xanthippe"


class Leaving(Traffic):
    """The page views of the people who are to be forgotten."""

    def _event(self) -> bytes:
        event, person = parsed(super()._event()), f"{NAME}-{self.random.randrange(PEOPLE)}"
        return b"not json" if event is None else json.dumps(event | {"visitor_id": person}).encode()


def forget(people: Iterable[int]) -> None:
    words = [word for person in people for word in ("--subject", f"visitor_id={NAME}-{person}")]
    with shared_spark():
        answer("forget", *words)


@pytest.mark.nightly
def test_two_hundred_people_are_forgotten_under_traffic(
    world: World, no_archive: None, batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One command forgets half of them, and two commands forget the others."""
    settings = world.settings
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(copy_views(tmp_path, *VIEWS)))
    stream = start(settings, "stream.py")
    archive = start(settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="0.5")
    Leaving(settings).send(5_000)
    world.catch_up(stream, "sessions")
    with world.traffic.arriving(20, 0.2) as others:
        for people in (range(100), range(100, 150), range(150, PEOPLE)):
            forget(people)
    world.catch_up(stream, "sessions")
    ends = topics.end_offsets(settings, ["page_view"])
    archive.wait(lambda: archived_positions(settings, ["page_view"]).covers(ends), 60, "the archive to catch up")

    assert others.events > 0
    batch.require_equal_from_raw(VIEWS)
    report = run_audit(settings, deep=True)
    assert report.verdict == "SOUND", report.faults
    with connect(settings, autocommit=True) as connection:
        assert places_with(settings, connection, [NAME], ["erasure"]) == []
    assert len(answer("erasures", "list")["erasures"]) == 3
    assert (stream.end(), archive.end()) == (0, 0)
