"""Forgotten people are in no table, object, log or file, and in no topic except the topics that their receipts name.

Two hundred people send page views, bad events and commands until they are forgotten. Afterwards, the views equal their
rebuild, the API has no rows of them, and the table that an output topic leads to lacks them. PostgreSQL's files, with
the WAL, are searched when they are written again, because free space keeps rows that are gone (`docs/erasure.md`).
"""

import json
import signal
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import httpx
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

import runtime
from tests.beds.world import World, known
from tests.chosen_views import copy_views
from tests.command import answer, process_answer, shared_spark, truelog_process
from tests.deadline import deadline, until
from tests.library.commands.command_client import CommandClient, send_until_answered
from tests.library.forgetting.byte_search import places_with, tables_with, topics_with
from tests.library.forgetting.postgresql_files import deleted_wal, files_with, rewrite
from tests.library.listener import Listener, listening
from tests.library.relay.read_topic import table
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.collector_client import Client, page_view
from tests.scenes.traffic import Traffic, parsed
from truelog.archive.audit_evidence import run_audit
from truelog.archive.erasing.erase import ArchiveEraser, Offsets
from truelog.archive.table import archived_positions
from truelog.batch.rebuild import Rebuilder
from truelog.forgetting.erase_view import ErasedView
from truelog.log import topics
from truelog.relay.view_feed import topic_of
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

pytestmark = pytest.mark.own_servers

SHIPPED, PUBLISHED = ("page_audience", "sessions"), "visitor_pages"
VIEWS = (*SHIPPED, PUBLISHED)
VIEW = '''"""How many pages each visitor has viewed."""
from pyspark.sql import DataFrame, functions as F
from truelog import Sum, View

def transform(page_view: DataFrame) -> DataFrame:
    return page_view.select("visitor_id", F.lit(1).alias("views"))

VIEW = View(reads=("page_view",), transform=transform, key=("visitor_id",), measures={"views": Sum()}, publish=True)
'''
SERVICES = ("collector", "commands", "relay", "notifier", "api")
GROUPS, NAME = (range(100), range(100, 150), range(150, 200)), "xanthippe"  # the people of each command
OUTPUT = topic_of(PUBLISHED, 1)
NAMING = {"page_view", "cart_event", "dead_letter", OUTPUT}  # the topics that name them for a stated time
COPIES = {f"state.{PUBLISHED}_v1", "truelog.outbox", "truelog.command_event", "truelog.notification_row"}


class Leaving(Traffic):
    """The page views of the people who are to be forgotten."""

    def __init__(self, settings: Settings, people: Iterable[int], name: str = NAME) -> None:
        super().__init__(settings)
        self.people = [f"{name}-{person}" for person in people]

    def _event(self) -> bytes:
        event, person = parsed(super()._event()), self.random.choice(self.people)
        return b"not json" if event is None else json.dumps(event | {"visitor_id": person}).encode()


def subjects(people: Iterable[int], name: str = NAME) -> list[str]:
    return [word for person in people for word in ("--subject", f"visitor_id={name}-{person}")]


def forget(people: Iterable[int], name: str = NAME) -> None:
    with shared_spark():
        answer("forget", *subjects(people, name))


@dataclass
class Scene:
    """A stream with three views, an archive, the services, and a receiver of notifications."""

    world: World
    listener: Listener
    stream: Application
    archive: Application

    @property
    def settings(self) -> Settings:
        return self.world.settings

    def read_all(self) -> None:
        ends = topics.end_offsets(self.settings, ["page_view"])
        self.world.catch_up(self.stream, PUBLISHED)
        self.archive.wait(
            lambda: archived_positions(self.settings, ["page_view"]).covers(ends), 60, "the archive to catch up"
        )

    def published(self) -> dict[str, str]:
        """What a new reader of the output topic arrives at."""
        return table(self.settings, OUTPUT)

    def served(self, person: str) -> object:
        """The rows of a person, as the API answers."""
        address, key = self.settings.address("api"), self.settings.reader_key.get_secret_value()
        url = f"http://{address.host}:{address.port}/views/{PUBLISHED}/rows"
        asked = httpx.get(url, params={"key": person}, headers={"Authorization": f"Bearer {key}"}, timeout=deadline(30))
        assert asked.status_code == 200, asked.text
        return asked.json()["rows"]

    def leave_copies(self, people: Iterable[int]) -> None:
        """Some people also send a command and an event that is rejected."""
        client = Client(self.settings, self.settings.producer_key.get_secret_value())
        commands = [CommandClient(self.settings)]
        for person in list(people)[:3]:
            visitor = {"visitor_id": f"{NAME}-{person}"}
            cart = {"cart_id": f"basket-{person}", "product": "lamp", "quantity": 1}
            sent = send_until_answered(commands, "add_to_cart", f"leave-{person}", **visitor, **cart)
            assert sent.status in (200, 202), sent
            assert client.post([page_view(person, **visitor, bytes="many")]).status == 422

    def require_copies(self, person: str) -> None:
        """Wait until there are copies of each kind, so that a search which finds nothing means something."""

        def require() -> None:
            with connect(self.settings, autocommit=True) as connection:
                missing = COPIES.difference(tables_with(connection, [NAME]))
            missing |= NAMING - topics_with(self.settings, [NAME])
            others = {"API": self.served(person), "output": self.published(), "notifications": self.listener.taken}
            missing |= {name for name, content in others.items() if NAME not in str(content)}
            if missing:
                raise ServiceDown(f"these do not name the people yet: {', '.join(sorted(missing))}")

        until(require, 120, "copies of the people's data")

    def require_no_traces(self, batch: Batch, name: str = NAME) -> None:
        batch.require_equal_from_raw(VIEWS)
        report = run_audit(self.settings, deep=True)
        assert report.verdict == "SOUND", report.faults
        with connect(self.settings, autocommit=True) as connection:
            assert places_with(self.settings, connection, [name], ()) == []
        assert name not in str(self.published())

    def forget_all(self, batch: Batch, people: Iterable[int], name: str) -> None:
        forget(people, name)
        self.require_no_traces(batch, name)


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    with listening() as opened:
        yield opened


@pytest.fixture(scope="module")
def scene(world: World, listener: Listener, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = copy_views(tmp_path_factory.mktemp("views"), *SHIPPED)
    (folder / f"{PUBLISHED}.py").write_text(VIEW)
    more = {"views_folder": folder, "notification_channels": {"wall": {"kind": "webhook", "url": listener.url}}}
    with deleted_wal(world.settings), known(world.settings, **more):
        runtime.up(world.settings, SERVICES, tethered=True)
        stream = start(world.settings, "stream.py")
        # An erasure is written between two commits of the archive, which are 30 s apart by default.
        archive = start(world.settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="5")
        stream.kept = archive.kept = True
        yield Scene(world, listener, stream, archive)
        assert (stream.end(), archive.end()) == (0, 0)


@pytest.mark.nightly
def test_two_hundred_people_are_forgotten_under_traffic(scene: Scene, batch: Batch, tmp_path: Path) -> None:
    """Each command forgets a group, which sends events until the command begins. One command is killed."""
    scene.world.traffic.send(100)
    scene.world.catch_up(scene.stream, PUBLISHED)
    assert answer("notifications", "add", "many", "--row", PUBLISHED, "--when", "views > 3", "--to", "wall")["in_log"]
    with ExitStack() as ended, scene.world.traffic.arriving(20, 0.2) as others:
        leaving = [ended.enter_context(ExitStack()) for _ in GROUPS]
        for group, people in zip(leaving, GROUPS, strict=True):
            group.enter_context(Leaving(scene.settings, people).arriving(10, 0.5))
            scene.leave_copies(people)
        scene.require_copies(f"{NAME}-0")
        for group, people in zip(leaving, GROUPS, strict=True):
            group.close()
            if people is GROUPS[1]:
                forget_with_a_kill(people, tmp_path)
            else:
                forget(people)
            assert scene.served(f"{NAME}-{people[0]}") == []
    scene.read_all()
    assert others.events > 0
    scene.require_no_traces(batch)
    require_stated(scene.settings)
    require_gone_from_files(scene.settings)


def forget_with_a_kill(people: Iterable[int], folder: Path) -> None:
    """The command is killed after it has rewritten the archive, and before the ledger says so. Another one goes on."""
    fired = folder / "fired"
    fault = {"TRUELOG_FAULT": "forget.rewritten:1:kill", "TRUELOG_FAULT_FIRED": str(fired)}
    ended = truelog_process("forget", *subjects(people), **fault)
    assert (ended.returncode, fired.exists()) == (-signal.SIGKILL, True), ended.stderr
    [done] = process_answer("erasures", "resume")["erasures"]
    assert done["finished"]


def require_stated(settings: Settings) -> None:
    """Require that records name the people only in topics for which the receipts state a time."""
    receipts = [answer("erasures", "show", each["id"]) for each in answer("erasures", "list")["erasures"]]
    assert len(receipts) == len(GROUPS)
    stated = [set(each["kafka"]) | set(each["outputs"]) for each in receipts]
    assert topics_with(settings, [NAME]) == NAMING
    assert all(each == NAMING for each in stated), stated
    assert all(all((each["kafka"] | each["outputs"]).values()) for each in receipts), "no time is stated"


def require_gone_from_files(settings: Settings) -> None:
    """Require that only free space and WAL have named the people: without both, no file of PostgreSQL does."""
    assert files_with(settings, [NAME]), "the search finds nothing, although the WAL has what was written"

    def require() -> None:
        rewrite(settings)
        if found := files_with(settings, [NAME]):
            raise ServiceDown(f"{found} name the people")

    until(require, 60, "PostgreSQL's files without the people")  # a snapshot keeps rows that it may still need


def all_but_one(eraser: ArchiveEraser, table: Table, file: DataFile) -> Offsets:
    return COVERED(eraser, table, file)[:-1]


def as_they_are(rebuilder: Rebuilder) -> ErasedView:
    return ErasedView(rebuilder.compiled.name, 0, "EQUAL", "")


COVERED = ArchiveEraser._covered
DEFECTS = {  # what is patched, what it does instead, and how the defect is noticed
    "a_record_stays": ("truelog.archive.erasing.erase.ArchiveEraser._covered", all_but_one, "parquet"),
    "earlier_files_stay": ("truelog.forgetting.forget.Forgetting._expire", lambda _: None, "parquet"),
    "the_outbox_stays": ("truelog.forgetting.outputs.forget_published", lambda *_: None, "truelog.outbox"),
    "views_stay": ("truelog.forgetting.forget.erase_view", as_they_are, "do not equal their rebuild"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("defect", DEFECTS)
def test_an_erasure_with_a_defect_is_noticed(scene: Scene, batch: Batch, defect: str) -> None:
    patched, instead, noticed = DEFECTS[defect]
    Leaving(scene.settings, range(2), defect).send(200)
    scene.read_all()
    with mock.patch(patched, autospec=True, side_effect=instead), pytest.raises(AssertionError, match=noticed):
        scene.forget_all(batch, range(2), defect)
