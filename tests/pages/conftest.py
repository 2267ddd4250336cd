"""Airflow's api-server with the pages, a separate database and test users."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from unittest import mock

import psycopg
import pytest
from confluent_kafka import Producer

import runtime
from runtime import airflow
from runtime.airflow_client import Airflow, sign_in
from runtime.airflow_configuration import own_database
from tests.deadline import deadline
from tests.pages.backfills import wanted
from tests.pages.plausible import HOSTILE, fill, poll_again, views_folder
from tests.servers import AIRFLOW, OnSharedServers, SharedServers
from truelog.control import event_files, event_registry, topic_status
from truelog.control.application import ARCHIVE, STREAM
from truelog.erasure.dead_letter import DEAD_LETTER
from truelog.quality import gx_docs
from truelog.schema.loading.events import load_events
from truelog.sources.collector.classifier import EventClassifier, Receipt
from truelog.sources.collector.parser import parse_event
from truelog.storage.database import connect
from truelog.support.settings import KafkaUser, Settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from tests.library.versions.two_versions import TwoVersions
    from tests.pages.job import Job

USERS = ("analyst", "oncall", "admin")  # Viewer, User, Admin
# Bad events, the newest first.
BAD = (
    *(b'{"type": "page_view", "event_id": "e%d"}' % n for n in range(3)),
    b'{"type": "no", "event_id": "e"}',
    json.dumps({"type": HOSTILE[0], "event_id": "e"}).encode(),
    b"not JSON \xff",
)


@pytest.fixture(scope="session")
def pages_environment(servers: SharedServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnSharedServers]:
    """One home for all files about pages, because the api-server takes ten seconds to start."""
    folder = views_folder(tmp_path_factory.mktemp("catalogue") / "views")
    made = servers.environment(views_folder=folder, lag_poll_seconds=600)
    made.provide("postgresql", "s3", AIRFLOW)
    yield made
    made.end()


@pytest.fixture(scope="module")
def environment(pages_environment: OnSharedServers) -> Iterator[OnSharedServers]:
    """The same home for each file, with another database and an empty bucket."""
    pages_environment.renew()
    with mock.patch.dict(os.environ, TRUELOG_HOME=str(pages_environment.settings.home)):
        yield pages_environment


@pytest.fixture(scope="module")
def filled(environment: OnSharedServers) -> Iterator[Settings]:
    """A database with a plausible history until now, in which both applications hold their locks."""
    with connect(environment.settings, autocommit=True) as connection:
        fill(connection)
        gx_docs.store_page(environment.settings, 1, f"<body><h1>Data Docs</h1>{''.join(HOSTILE)}</body>".encode())
        for name in (ARCHIVE, STREAM):
            connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (name,))
        yield environment.settings


@pytest.fixture
def archive_down(filled: Settings) -> Iterator[None]:
    """The archive holds no lease."""
    rename = "UPDATE truelog.lease SET application = %s WHERE application = %s"
    with connect(filled, autocommit=True) as connection:
        connection.execute(rename, ("gone", ARCHIVE))
        try:
            yield
        finally:
            connection.execute(rename, (ARCHIVE, "gone"))


@pytest.fixture
def unread(filled: Settings) -> Iterator[None]:
    """A suspended topic, and an event file that cannot be used."""
    with connect(filled, autocommit=True) as connection:
        topic_status.record_suspended(connection, ARCHIVE, {"click": f"click was deleted. {HOSTILE[0]}"})
        event_files.record_broken(connection, {"order": f"'(' was never closed. {HOSTILE[1]}"})
        try:
            yield
        finally:
            topic_status.record_suspended(connection, ARCHIVE, {})
            event_files.record_broken(connection, {})


@pytest.fixture(scope="module")
def rejected(filled: Settings, kafka: Settings) -> Settings:
    """Dead letters of an hour, and one of three days ago. One record of the topic is not a dead letter."""
    types = load_events()
    event_registry.register(filled, types[DEAD_LETTER])
    classifier, producer = EventClassifier(types, 10_000), Producer(filled.kafka(KafkaUser.COLLECTOR))
    for minutes, raw in ((3 * 1440, b"{}"), *((n, raw) for n, raw in enumerate(BAD))):
        receipt = Receipt(datetime.now(UTC) - timedelta(minutes=minutes), "shop")
        [record] = classifier.classify([parse_event(raw)], receipt)
        producer.produce(DEAD_LETTER, record.value, partition=0)
    producer.produce(DEAD_LETTER, b"{}", partition=1)
    assert producer.flush(deadline(30)) == 0
    return filled


@pytest.fixture(scope="session")
def _served(pages_environment: OnSharedServers) -> Settings:
    """The pages, served by Airflow's api-server without a scheduler."""
    runtime.up(pages_environment.settings, ["airflow-api"], tethered=True)
    return pages_environment.settings


@pytest.fixture(scope="module")
def pages(filled: Settings, _served: Settings) -> Settings:
    """The pages of the filled database. Airflow has no runs yet."""
    with psycopg.connect(**own_database(filled).database()) as connection:
        connection.execute("TRUNCATE dag_run, backfill, asset_event CASCADE")
    return filled


@pytest.fixture(scope="session")
def _registered_dags(_served: Settings) -> None:
    command = [sys.executable, "-m", "runtime.airflow_component", "dags", "reserialize"]
    done = subprocess.run(command, env=airflow.environment(_served), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def planned(pages: Settings, _registered_dags: None) -> Settings:
    """The pages, with the DAGs registered in Airflow. No task ever runs."""
    return pages


@pytest.fixture(scope="session")
def _clients(_served: Settings) -> dict[str, Airflow]:
    return {"anonymous": Airflow(_served)} | {user: sign_in(_served, user) for user in USERS}


@pytest.fixture(scope="module")
def users(pages: Settings, _clients: dict[str, Airflow]) -> dict[str, Airflow]:
    """Clients by user name; `anonymous` has not signed in."""
    return _clients


@pytest.fixture(scope="session")
def signed_in(_served: Settings, chromium: "Browser") -> dict[str, "BrowserContext"]:
    """A browser context for each user."""
    from tests.pages import browsing

    return {user: browsing.sign_in(chromium, _served, user) for user in USERS}


@pytest.fixture
def watched(
    pages: Settings, signed_in: dict[str, "BrowserContext"], request: pytest.FixtureRequest
) -> Iterator["Page"]:
    """A new page of the parametrized user, by default `admin`. Console errors fail the test."""
    from tests.pages import browsing

    page = signed_in[getattr(request, "param", "admin")].new_page()
    errors = browsing.collect_errors(page)
    yield page
    page.close()
    assert browsing.unexpected(errors) == []


@pytest.fixture(scope="module")
def airflows(planned: Settings) -> dict[str, Any]:
    """Connection parameters of Airflow's own database, where tests write what a scheduler would write."""
    return own_database(planned).database()


@pytest.fixture(scope="module")
def archived(filled: Settings) -> Settings:
    """Three archived records. One is valid, and a view skips another."""
    from tests.pages.archived_records import archive_records

    archive_records(filled)
    return filled


@pytest.fixture(scope="module")
def readable(archived: Settings) -> Settings:
    """The archive of these records, in which the positions of `page_views` lie."""
    from tests.library.archive_files import TOPIC_ID

    with connect(archived, autocommit=True) as connection:
        connection.execute("UPDATE truelog.position SET topic_id = %s WHERE view = 'page_views'", (TOPIC_ID,))
    return archived


@pytest.fixture(scope="module")
def ruled(filled: Settings) -> Iterator[Settings]:
    """Rules and searches with what they have found."""
    from tests.pages.found_by_rules import found_by_rules

    with connect(filled, autocommit=True) as connection, found_by_rules(connection, filled.views_folder):
        yield filled


@pytest.fixture(scope="module")
def full(planned: Settings, users: dict[str, Airflow], rejected: Settings, archived: Settings, ruled: Settings) -> None:
    """A platform on which every page has something to show, one cancelled backfill included."""
    made = users["oncall"].ask("POST", "/api/v2/backfills", wanted())["id"]
    users["oncall"].ask("PUT", f"/api/v2/backfills/{made}/cancel")


@pytest.fixture
def begin(
    pages: Settings, signed_in: dict[str, "BrowserContext"], request: pytest.FixtureRequest
) -> Iterator[Callable[[], "Job"]]:
    """Begins a job in the way that a parameter says (`ways.each_job_in_its_ways`)."""
    from tests.pages.job import Job

    opened: list[Page] = []

    def new() -> Job:
        opened.append(signed_in[request.param.user].new_page())
        return Job(opened[-1], request.param)

    yield new
    for each in opened:
        each.close()


@pytest.fixture
def polled(pages: Settings) -> None:
    """The readers were polled in the last minutes, however long ago the first test of the file began."""
    with connect(pages) as connection:
        poll_again(connection)


@pytest.fixture
def idle(airflows: dict[str, Any]) -> None:
    """Airflow has no runs and no backfills."""
    with psycopg.connect(**airflows) as connection:
        connection.execute("TRUNCATE dag_run, backfill, asset_event CASCADE")


@pytest.fixture
def versions(pages: Settings) -> Iterator["TwoVersions"]:
    """A view with two versions. Readers see the first one."""
    from tests.pages.shown_versions import shown_versions

    with shown_versions(pages) as made:
        yield made
