"""The platform on Kafka, PostgreSQL and S3 of one's own, with TLS and a private CA, by settings alone.

The stores are started here, and not by Truelog. Events go through the collector, the archive and a stream, the view is
compared with its rebuild from raw bytes, and the doctor finds nothing to cure. Then each setting is wrong once.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from unittest import mock

import psycopg
import pytest

from tests.beds.authority import Authority
from tests.beds.own_stores import own_stores
from tests.beds.world import World
from tests.command import process_answer, truelog_process
from tests.deadline import until
from tests.scenes.applications import start
from tests.scenes.collector_client import Client, page_view
from tests.scenes.traffic import Traffic
from tests.servers import SharedServers
from truelog.log import topics
from truelog.support.errors import ServiceDown
from truelog.support.files import write_private
from truelog.support.settings import ENVIRONMENT_FILE, Settings

pytestmark = pytest.mark.nightly  # the gate connects to each store once: tests/library/doctor/test_transport.py

EVENTS, SECRET = 200, "Hunter2-of-the-test"


@pytest.fixture(scope="module")
def plain_and_own(servers: SharedServers, authority: Authority) -> Iterator[tuple[Settings, Settings]]:
    """The settings of the servers themselves, and those of a platform in another home that uses them."""
    served, home = Path(mkdtemp(prefix="truelog-stores-")), Path(mkdtemp(prefix="truelog-"))
    with own_stores(served, authority) as (plain, reached):
        lines = (served / ENVIRONMENT_FILE).read_text().splitlines(keepends=True)
        chosen = {f"TRUELOG_{name.upper()}": value for name, value in (reached | {"capture": True}).items()}
        kept = [line for line in lines if line.partition("=")[0] not in chosen]
        write_private(home / ENVIRONMENT_FILE, "".join([*kept, *(f"{n}={v}\n" for n, v in chosen.items())]))
        with mock.patch.dict(os.environ, TRUELOG_HOME=str(home)):
            yield plain, Settings(home=home)
            assert truelog_process("down").returncode == 0
    for each in (served, home):
        shutil.rmtree(each)


@pytest.fixture(scope="module")
def own(plain_and_own: tuple[Settings, Settings]) -> Settings:
    _, settings = plain_and_own
    started = truelog_process("up", "ticks", "collector", "connect", "airflow-api")
    assert started.returncode == 0, started.stderr
    return settings


def test_a_view_equals_the_rebuild_from_raw_bytes(own: Settings, one_view: None) -> None:
    archive = start(own, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="2")
    stream = start(own, "stream.py")
    body = "\n".join(json.dumps(page_view(number)) for number in range(EVENTS)).encode()
    sent = Client(own, own.producer_key.get_secret_value()).post(body, "application/x-ndjson")
    assert (sent.status, len(sent.body["good"])) == (200, EVENTS)
    world = World(own, Traffic(own))
    world.read_all(archive, stream, "page_views")
    assert world.counted("page_views") == EVENTS
    day = f"{world.newest_log_day():%Y-%m-%d}"
    made = process_answer("recompute", "--day", day, "--open", "page_views", exit_code=0)
    assert [(each["view"], each["rows"] > 0) for each in made["views"]] == [("page_views", True)]
    for options in ((), ("--from-raw",)):
        [found] = process_answer("reconcile", "page_views", *options, exit_code=0)["views"]
        assert (found["verdict"], found["rows"] > 0) == ("EQUAL", True)
    assert (archive.process.poll(), stream.process.poll()) == (None, None)


def test_a_captured_table_reaches_its_topic(own: Settings) -> None:
    with psycopg.connect(**own.database() | {"dbname": own.source_database}, autocommit=True) as session:
        session.execute("INSERT INTO customers (id, name) VALUES (1, 'Ann')")

    def captured() -> None:
        if not topics.end_offsets(own, ["customers"]).at("customers", 0):
            raise ServiceDown("the topic is empty")

    until(captured, 90, "the row of the captured table")


def test_the_doctor_finds_nothing_to_cure(own: Settings) -> None:
    found = process_answer("doctor")["results"]
    stores = [each for each in found if each["area"] != "machine"]
    assert [each for each in stores if each["outcome"] != "FINE"] == []
    for check, said in (("encryption", "TLSv1.3 to "), ("certificate", "days")):
        lines = {each["area"]: each["found"] for each in stores if each["check"] == check}
        assert lines.keys() == {"postgresql", "object store", "kafka"}
        assert all(said in line for line in lines.values()), lines


@pytest.mark.parametrize(
    ("setting", "store", "said"),
    [
        ("KAFKA_CA_FILE", "kafka", "Check TRUELOG_KAFKA_CA_FILE"),
        ("KAFKA_PASSWORD", "kafka", "Check the TRUELOG_KAFKA_…_PASSWORD settings"),
        ("KAFKA_PROTOCOL", "kafka", "Broker transport failure"),
        ("DATABASE_CA_FILE", "postgresql", "certificate verify failed"),
        ("DATABASE_PORT", "postgresql", "server does not support SSL, but SSL was required"),
        ("DATABASE_HOST", "postgresql", "does not match host name"),
        ("POSTGRES_PASSWORD", "postgresql", "password authentication failed"),
        ("S3_CA_FILE", "s3", "certificate verify failed"),
        ("S3_SECRET_KEY", "s3", "Forbidden"),
    ],
)
def test_a_wrong_setting_is_named_and_no_secret_is_shown(
    plain_and_own: tuple[Settings, Settings], other_ca: Path, setting: str, store: str, said: str
) -> None:
    plain, own = plain_and_own
    values = {
        "KAFKA_PROTOCOL": "SASL_PLAINTEXT",
        "DATABASE_PORT": str(plain.database_port),
        "DATABASE_HOST": "localhost",
    }
    wrong = values.get(setting, str(other_ca) if setting.endswith("_FILE") else SECRET)
    ended = truelog_process("up", "ticks", **{f"TRUELOG_{setting}": wrong})
    printed = ended.stdout + ended.stderr
    assert (ended.returncode, f"{store} at " in printed, said in printed) == (3, True, True), printed
    assert "see `truelog doctor`" in printed
    secrets = (own.kafka_password, own.database_password, own.postgres_password, own.s3_secret_key)
    assert not [each for each in (SECRET, *(one.get_secret_value() for one in secrets)) if each in printed]
