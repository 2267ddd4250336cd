"""PostgreSQL is restored from a backup under traffic, by the steps of docs/restore.md. The views are right again."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import runtime
from tests.beds.world import EACH_EVENT, World
from tests.command import answer, shared_spark, truelog
from tests.deadline import deadline, until
from tests.meanwhile import meanwhile
from tests.scenes.applications import Application, start
from tests.scenes.backup import back_up, restore
from tests.scenes.batch import Batch
from tests.scenes.traffic import in_the_log, page_views
from truelog.archive.audit_evidence import run_audit
from truelog.archive.table import archived_positions, identifier, open_catalog
from truelog.control.topic_status import suspended_topics
from truelog.forgetting import reading
from truelog.log import topics
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown

pytestmark = pytest.mark.own_servers

COMMITS = 25  # after the backup: more than the versions of the metadata that the bucket keeps
TOPIC = "page_view"


def suspended(world: World) -> str:
    """Why the archive does not archive the topic."""
    with connect(world.settings) as connection:
        return " ".join(each.reason for each in suspended_topics(connection) if each.topic == TOPIC)


def archive(world: World) -> Application:
    running = start(world.settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="0.1")
    running.wait(lambda: "archiving from" in running.tail(), 90, "the archive to begin")
    return running


def commits(world: World) -> int:
    """How often the archive has committed to the topic's table."""
    with open_catalog(world.settings) as catalog:
        newest = catalog.load_table(identifier(TOPIC)).current_snapshot()
    return (newest.sequence_number or 0) if newest else 0


def archive_all(world: World, archiver: Application) -> None:
    ends = topics.end_offsets(world.settings, [TOPIC])
    archiver.wait(lambda: archived_positions(world.settings, [TOPIC]).covers(ends), 60, "the archive to catch up")


def begun(world: World, records: int) -> tuple[Application, Application]:
    """A stream and an archive that have so many records of `page_view`."""
    stream, archiver = start(world.settings, "stream.py"), archive(world)
    world.traffic.send(records)
    world.catch_up(stream, EACH_EVENT)
    archive_all(world, archiver)
    return stream, archiver


@pytest.mark.nightly
def test_a_database_from_a_backup_under_traffic(
    world: World, no_archive: None, each_event: None, batch: Batch, tmp_path: Path
) -> None:
    backup = tmp_path / "truelog.dump"
    stream, archiver = begun(world, 500)
    with world.traffic.arriving(20, 0.2):
        back_up(world.settings, backup)
        enough = commits(world) + COMMITS
        archiver.wait(lambda: commits(world) >= enough, 90, "commits after the backup")
        world.catch_up(stream, EACH_EVENT)
        archiver.die()
        stream.die()
        restore(world.settings, backup)

        refused = start(world.settings, "archive.py")
        refused.wait(lambda: "`truelog archive adopt`" in suspended(world), 90, "the archive to suspend the topic")
        assert refused.end() == 0
        adopted = {each["table"]: each for each in answer("archive", "adopt")["tables"]}
        assert adopted[f"log.{TOPIC}"]["changed"]
        stream, archiver = start(world.settings, "stream.py"), archive(world)
        world.catch_up(stream, EACH_EVENT)
    world.catch_up(stream, EACH_EVENT)
    archive_all(world, archiver)
    assert (stream.end(), archiver.end()) == (0, 0)

    world.require_each_counted_once()
    batch.require_equal_from_raw([EACH_EVENT])
    assert batch.reconcile(EACH_EVENT).equal
    report = run_audit(world.settings, deep=True)
    assert report.verdict == "SOUND", report.faults
    assert truelog("archive", "adopt", "--dry-run").returncode == 0


FORGOTTEN = "v7"


def asked(world: World, event_id: str) -> httpx.Response:
    """What the API says about an event."""
    address, key = world.settings.address("api"), world.settings.reader_key.get_secret_value()
    url = f"http://{address.host}:{address.port}/views/{EACH_EVENT}/rows"
    return httpx.get(url, params={"key": event_id}, headers={"Authorization": f"Bearer {key}"}, timeout=deadline(30))


def require_held(world: World, event_id: str, cure: str) -> None:
    """Require that the API names the cure. Its first answer may be that PostgreSQL has ended its connections."""

    def named() -> None:
        held = asked(world, event_id)
        assert held.status_code == 503, held.text
        if cure not in held.json()["detail"]:
            raise ServiceDown(held.text)

    until(named, 30, f"the API to name `{cure}`")


@contextmanager
def asked_without_end(world: World, event_id: str) -> Iterator[None]:
    """Ask about an event until the block ends. No answer may have the event, whatever happens to the database."""
    answers = list[httpx.Response]()

    def ask(ended: threading.Event) -> None:
        while not ended.wait(0.02):
            answers.append(asked(world, event_id))

    with meanwhile(ask):
        yield
    assert {each.status_code for each in answers} == {200, 503}  # 200, without the event, after the erasure
    assert not [each.text for each in answers if each.json().get("rows")]


@pytest.mark.nightly
def test_people_who_were_forgotten_since_the_backup_are_never_served(
    world: World, no_archive: None, each_event: None, batch: Batch, tmp_path: Path
) -> None:
    backup = tmp_path / "truelog.dump"
    stream, archiver = begun(world, 2_000)
    theirs = [
        each.event_id for each in page_views(in_the_log(world.settings)) if each.model_dump()["visitor_id"] == FORGOTTEN
    ]
    reading.read_once(world.settings)  # as `truelog up` does
    runtime.up(world.settings, ["api"], tethered=True)
    assert asked(world, theirs[-1]).json()["rows"]
    back_up(world.settings, backup)
    with shared_spark():
        answer("forget", "--subject", f"visitor_id={FORGOTTEN}")
    assert asked(world, theirs[-1]).json()["rows"] == []
    archiver.die()
    stream.die()
    with asked_without_end(world, theirs[-1]):
        restore(world.settings, backup)
        require_held(world, theirs[-1], "truelog archive adopt")
        assert answer("archive", "adopt")["unfinished_erasures"] == 1
        require_held(world, theirs[-1], "truelog erasures adopt")
        stream, archiver = start(world.settings, "stream.py"), archive(world)
        world.catch_up(stream, EACH_EVENT)
        require_held(world, theirs[-1], "truelog erasures adopt")
        with shared_spark():
            answer("erasures", "adopt")
    for event_id in theirs:
        assert asked(world, event_id).json()["rows"] == []
    batch.require_equal_from_raw([EACH_EVENT])
    assert (stream.end(), archiver.end()) == (0, 0)
