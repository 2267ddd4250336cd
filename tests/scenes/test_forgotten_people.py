"""Two hundred people are forgotten under traffic. Views equal their rebuild. No table, object or file names them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from tests.beds.world import World
from tests.chosen_views import copy_views
from tests.command import answer, shared_spark
from tests.library.forgetting.byte_search import places_with
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.leaving import NAME, Leaving
from truelog.archive.audit_evidence import run_audit
from truelog.archive.erasing.erase import ArchiveEraser, Offsets
from truelog.batch.rebuild import Rebuilder
from truelog.forgetting.erase_view import ErasedView
from truelog.storage.database import connect

pytestmark = pytest.mark.own_servers

VIEWS = ("page_audience", "sessions")
PEOPLE = 200


def forget(people: Iterable[int], name: str = NAME) -> None:
    words = [word for person in people for word in ("--subject", f"visitor_id={name}-{person}")]
    with shared_spark():
        answer("forget", *words)


@dataclass
class Scene:
    """A stream with two views, and an archive."""

    world: World
    batch: Batch
    stream: Application
    archive: Application

    def read_all(self) -> None:
        self.world.read_all(self.archive, self.stream, "sessions")

    def require_no_traces(self, name: str = NAME) -> None:
        settings = self.world.settings
        self.batch.require_equal_from_raw(VIEWS)
        report = run_audit(settings, deep=True)
        assert report.verdict == "SOUND", report.faults
        with connect(settings, autocommit=True) as connection:
            assert places_with(settings, connection, [name], ["erasure"]) == []

    def forget_all(self, people: int, name: str) -> None:
        forget(range(people), name)
        self.require_no_traces(name)


@pytest.fixture
def scene(
    world: World, no_archive: None, batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(copy_views(tmp_path, *VIEWS)))
    stream = start(world.settings, "stream.py")
    archive = start(world.settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="3")
    yield Scene(world, batch, stream, archive)
    assert (stream.end(), archive.end()) == (0, 0)


@pytest.mark.nightly
def test_two_hundred_people_are_forgotten_under_traffic(scene: Scene) -> None:
    """One command forgets half of them, and two commands forget the others."""
    Leaving(scene.world.settings, people=PEOPLE).send(5_000)
    scene.world.catch_up(scene.stream, "sessions")
    with scene.world.traffic.arriving(20, 0.2) as others:
        for people in (range(100), range(100, 150), range(150, PEOPLE)):
            forget(people)
    scene.read_all()
    assert others.events > 0
    scene.require_no_traces()
    assert len(answer("erasures", "list")["erasures"]) == 3


def all_but_one(eraser: ArchiveEraser, table: Table, file: DataFile) -> Offsets:
    return COVERED(eraser, table, file)[:-1]


def as_they_are(rebuilder: Rebuilder) -> ErasedView:
    return ErasedView(rebuilder.compiled.name, 0, "EQUAL", "")


COVERED = ArchiveEraser._covered
DEFECTS = {  # what is patched, what it does instead, and how the defect is noticed
    "a_record_stays": ("truelog.archive.erasing.erase.ArchiveEraser._covered", all_but_one, "parquet"),
    "earlier_files_stay": ("truelog.forgetting.forget.Forgetting._expire", lambda _: None, "parquet"),
    "views_stay": ("truelog.forgetting.forget.erase_view", as_they_are, "do not equal their rebuild"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("defect", DEFECTS)
def test_an_erasure_with_a_defect_is_noticed(scene: Scene, defect: str) -> None:
    patched, instead, noticed = DEFECTS[defect]
    Leaving(scene.world.settings, defect, people=2).send(200)
    scene.read_all()
    with mock.patch(patched, autospec=True, side_effect=instead), pytest.raises(AssertionError, match=noticed):
        scene.forget_all(2, defect)
