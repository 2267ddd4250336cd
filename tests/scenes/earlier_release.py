"""The home of an earlier release, as `earlier_release.tar.xz` stores it, and the program that made it.

    python -m tests.scenes.earlier_release

checks out that release, lets it run a platform, and stores the home that the release leaves: its settings without
addresses, a dump of its database, Kafka's logs without indexes, and the bucket with the archive and the certificates.
The history of the repository must have the commit. Later releases read the file as it is; store the home of a newer
release beside it, rather than in its place, if one differs in what it stores.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import partial
from pathlib import Path

import runtime
from tests.command import process_answer
from tests.deadline import until
from tests.house.tree import PROJECT
from tests.scenes.applications import start
from tests.scenes.backup import back_up
from tests.scenes.traffic import Traffic
from tests.servers import STORES
from truelog.archive.table import archived_positions
from truelog.control import event_files
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.storage import bucket
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import ENVIRONMENT_FILE, Settings

RELEASE = "a6e1fada"  # of 25 November 2026, with four migrations
HOME = Path(__file__).with_name("earlier_release.tar.xz")
DUMP = "database.dump"
BUCKET = "bucket"  # a folder with the objects
# The first three have the same version since. Among them are hashed visitors, and rows that expire.
VIEWS = ("page_views", "page_audience", "request_rates", "sessions")
EVENTS = 400
_ADDRESS = re.compile(r"TRUELOG_(\w+_PORT|KAFKA_BOOTSTRAP|S3_ENDPOINT)=")


def unpacked() -> Path:
    """The stored home in a new folder."""
    home = Path(tempfile.mkdtemp(prefix="truelog-"))  # not in a folder that PostgreSQL's user cannot enter
    with tarfile.open(HOME) as stored:
        stored.extractall(home, filter="data")
    return home


def fill_bucket(settings: Settings) -> None:
    """Put the stored objects into the bucket. A copy of the server's files would lack the attributes that it adds."""
    client, folder = bucket.s3_client(settings), settings.home / BUCKET
    for file in filter(Path.is_file, folder.rglob("*")):
        key = file.relative_to(folder).as_posix()
        client.put_object(Bucket=settings.s3_bucket, Key=key, Body=file.read_bytes())


def run(home: Path) -> None:
    """Run a platform in the home, until each view has a certificate. The program runs this with the earlier code."""
    settings = runtime.set_up(home, random_ports=True)
    runtime.up(settings, {*STORES, "ticks"}, tethered=True)
    assert event_files.register_files(settings) == {}
    archive = start(settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="1")
    stream, traffic = start(settings, "stream.py"), Traffic(settings, delay=600)
    for _ in range(2):  # batches
        traffic.send(EVENTS // 2)
        ends = topics.end_offsets(settings, ["page_view"])
        until(partial(_require_archived, settings, ends), 120, "the archive")
        until(partial(_require_merged, settings, ends), 120, "the views")
    assert (stream.end(), archive.end()) == (0, 0)
    compared = process_answer("reconcile", "--from-raw")["views"]
    assert {each["view"]: each["verdict"] for each in compared} == dict.fromkeys(VIEWS, "EQUAL")
    back_up(settings, home / DUMP)
    runtime.down(settings)


def _require_archived(settings: Settings, ends: Positions) -> None:
    if not archived_positions(settings, ["page_view"]).covers(ends):
        raise ServiceDown("the archive is behind")


def _require_merged(settings: Settings, ends: Positions) -> None:
    with connect(settings) as connection:
        query = "SELECT view, topic, partition, next_offset, topic_id FROM truelog.position WHERE topic = 'page_view'"
        rows = connection.execute(query).fetchall()
    reached = {view: Positions.of_rows([row[1:] for row in rows if row[0] == view]) for view in VIEWS}
    if behind := [view for view, positions in reached.items() if not positions.covers(ends)]:
        raise ServiceDown(f"{', '.join(behind)} are behind")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        release, home = Path(folder) / "release", Path(tempfile.mkdtemp(prefix="truelog-"))
        code = subprocess.run(["git", "archive", RELEASE], cwd=PROJECT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(code)) as packed:
            packed.extractall(release, filter="data")
        shutil.copy(__file__, release / "tests/scenes")
        for view in (release / "spark_apps/views").glob("*.py"):
            if view.stem not in VIEWS:
                view.unlink()
        jars = os.environ.get("TRUELOG_JARS", str(PROJECT / ".truelog/jars"))
        path = f"{release / 'include'}:{release}"
        environment = os.environ | {"PYTHONPATH": path, "TRUELOG_HOME": str(home), "TRUELOG_JARS": jars}
        program = f"from tests.scenes import earlier_release as e; e.run(e.Path({str(home)!r}))"
        subprocess.run([sys.executable, "-c", program], cwd=release, env=environment, check=True)
        _store(home)
        shutil.rmtree(home)


def _store(home: Path) -> None:
    """Pack what the home has, except addresses, logs, and what Kafka and PostgreSQL make again."""
    file = home / ENVIRONMENT_FILE
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if not _ADDRESS.match(line)))
    with tarfile.open(HOME, "w:xz", preset=9) as stored:
        for each in (ENVIRONMENT_FILE, DUMP, "kafka/data"):
            stored.add(home / each, each, filter=_kept)
        stored.add(home / "s3/objects/truelog", BUCKET, filter=_kept)


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if member.name.endswith("index") else member


if __name__ == "__main__":
    main()
