"""Airflow's api-server with the pages, a separate database and test users."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from psycopg import sql

import runtime
from runtime import airflow
from runtime.airflow_client import Airflow, sign_in
from runtime.airflow_configuration import own_database
from tests.library.archived import drop_archive
from tests.pages.plausible import HOSTILE, fill, views_folder
from tests.scenes.conftest import known
from truelog.archive.archive_table import open_catalog
from truelog.control import event_files, event_registry, topic_status
from truelog.control.application import ARCHIVE, STREAM
from truelog.ingest.event_classifier import DEAD_LETTER, EventClassifier, Receipt
from truelog.ingest.event_parser import parse_event
from truelog.log import topics
from truelog.quality import gx_docs
from truelog.schema.event import load_events
from truelog.storage.database import connect, migrate
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings
from truelog.support.wait import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

DATABASE = "pages"
USERS = ("analyst", "oncall", "admin")  # Viewer, User, Admin
# Bad events, the newest first.
BAD = (
    *(b'{"type": "page_view", "event_id": "e%d"}' % n for n in range(3)),
    b'{"type": "no", "event_id": "e"}',
    json.dumps({"type": HOSTILE[0], "event_id": "e"}).encode(),
    b"not JSON \xff",
)


@pytest.fixture(scope="package")
def filled(postgresql: Settings, s3: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A separate database, because other tests create views in the default database. Both applications hold locks."""
    change_database(postgresql, "CREATE DATABASE {} OWNER truelog", DATABASE)
    folder = views_folder(tmp_path_factory.mktemp("catalogue") / "views")
    with known(postgresql, database_name=DATABASE, views_folder=folder, lag_poll_seconds=600) as settings:
        migrate(settings)
        with connect(settings, autocommit=True) as connection:
            fill(connection)
            gx_docs.store_page(settings, 1, f"<h1>Data Docs</h1>{''.join(HOSTILE)}".encode())
            for name in (ARCHIVE, STREAM):
                connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (name,))
            yield settings
    change_database(postgresql, "DROP DATABASE {} WITH (FORCE)", DATABASE)


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


def require_absent(broker: AdminClient, topic: str) -> None:
    if topic in topics.existing_topics(broker):
        raise ServiceDown(f"{topic} still exists")


@pytest.fixture(scope="package")
def rejected(filled: Settings, kafka: Settings, migrated: Settings) -> Settings:
    """Dead letters of an hour, and one of three days ago, in a new topic. A record of the topic is no dead letter.

    Its archive is empty in both databases.
    """
    types, broker = load_events(), topics.client(filled, KafkaUser.ADMIN)
    if DEAD_LETTER in topics.existing_topics(broker):
        broker.delete_topics([DEAD_LETTER])[DEAD_LETTER].result(30)
        until(lambda: require_absent(broker, DEAD_LETTER), 30, "the end of the topic")
    topics.sync_topics(filled, {DEAD_LETTER: types[DEAD_LETTER]})
    classifier, producer = EventClassifier(types, 10_000), Producer(filled.kafka(KafkaUser.COLLECTOR))
    for minutes, raw in ((3 * 1440, b"{}"), *((n, raw) for n, raw in enumerate(BAD))):
        receipt = Receipt(datetime.now(UTC) - timedelta(minutes=minutes), "shop")
        [record] = classifier.classify([parse_event(raw)], receipt)
        producer.produce(DEAD_LETTER, record.value, partition=0)
    producer.produce(DEAD_LETTER, b"{}", partition=1)
    assert producer.flush(30) == 0
    for each in (filled, migrated):
        with open_catalog(each) as catalog:
            drop_archive(catalog, DEAD_LETTER)
    event_registry.register(migrated, types[DEAD_LETTER])
    return filled


@pytest.fixture(scope="package")
def pages(filled: Settings) -> Iterator[Settings]:
    """The pages, served by Airflow's api-server without a scheduler."""
    try:
        runtime.up(filled, ["airflow-api"], tethered=True)
        yield filled
    finally:
        runtime.stop_airflow(filled)
        _delete_dags(filled)


@pytest.fixture(scope="package")
def planned(pages: Settings) -> Settings:
    """The pages, with the DAGs registered in Airflow. No task ever runs."""
    command = [sys.executable, "-m", "runtime.airflow_component", "dags", "reserialize"]
    subprocess.run(command, env=airflow.environment(pages), capture_output=True, check=True)
    return pages


@pytest.fixture(scope="package")
def users(pages: Settings) -> dict[str, Airflow]:
    """Clients by user name; `anonymous` has not signed in."""
    return {"anonymous": Airflow(pages)} | {user: sign_in(pages, user) for user in USERS}


@pytest.fixture(scope="package")
def chromium() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    from tests.pages import browsing

    with sync_playwright() as playwright:
        browser = browsing.launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def signed_in(pages: Settings, chromium: "Browser") -> dict[str, "BrowserContext"]:
    """A browser context for each user."""
    from tests.pages import browsing

    return {user: browsing.sign_in(chromium, pages, user) for user in USERS}


@pytest.fixture
def watched(signed_in: dict[str, "BrowserContext"], request: pytest.FixtureRequest) -> Iterator["Page"]:
    """A new page of the parametrized user, by default `admin`. Console errors fail the test."""
    from tests.pages import browsing

    page = signed_in[getattr(request, "param", "admin")].new_page()
    errors = browsing.collect_errors(page)
    yield page
    page.close()
    assert browsing.unexpected(errors) == []


def _delete_dags(settings: Settings) -> None:
    """Delete the DAGs and their runs, which a scheduler in a later test would execute."""
    with psycopg.connect(**own_database(settings).database()) as connection:
        connection.execute("TRUNCATE dag, dag_run, backfill, asset, asset_alias CASCADE")


def change_database(settings: Settings, statement: str, name: str) -> None:
    """Create or drop a database, as PostgreSQL's superuser."""
    as_super = settings.database() | {
        "user": "postgres",
        "dbname": "postgres",
        "password": settings.postgres_password.get_secret_value(),
    }
    with psycopg.connect(**as_super, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
