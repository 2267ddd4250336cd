"""Alert kinds are renamed, and renamed back, in alerts, silences, notifications and the audit trail."""

from collections.abc import Iterator
from datetime import timedelta
from fnmatch import fnmatchcase
from itertools import product

import psycopg
import pytest
from pydantic import SecretStr

from runtime.postgresql import prepare
from tests.library.alert_tables import age, application_of
from tests.library.listener import Listener, listening
from truelog.alerts import alert_store
from truelog.alerts.alert_delivery import deliver
from truelog.alerts.alert_kind import KINDS, RENAMED
from truelog.alerts.alert_rules import Finding, NotificationPolicy, Observation, Source
from truelog.storage.database import Connection, connect, migrate
from truelog.support.settings import PROJECT, Settings

SINCE_THE_RENAME = {
    "build_overdue",
    "topic_suspended",
    "event_file_broken",
    "clock_jumped",
    "late_events_dropped",
    "groups_oversized",
}  # kinds that 0.1 did not have
BACK = (PROJECT / "include/truelog/storage/sql/back_to_0_1.sql").read_bytes()
DATABASE = "alert_kinds"
RECEIVERS = ["alertmanager", "pagerduty"]
FOUR_HOURS = timedelta(hours=4)

# Alerts in a 0.1 database: kind, subject, columns that contain a time, and whether receivers were notified.
ALERTS = [
    ("stands", "page_views", ("opened_at", "told_at"), True),
    ("down", "stream", ("opened_at", "told_at", "acknowledged_at"), True),
    ("disk", "home", ("opened_at",), False),  # a silence suppressed its notifications
    ("blind", "log", (), False),
    ("stands", "page_views", ("opened_at", "told_at", "acknowledged_at", "resolved_at"), True),
    ("dead_letters", "dead_letter", ("opened_at", "told_at"), True),
]
LITERAL = ["stands/*", "unsound/archive", "down/stream"]
UNCHANGED = ["*", "*/x", "x/[y", "[]/x", "d[z-a]*/x", "dead_*/x"]  # kinds that match were not renamed or do not exist
EXTENDED = ["st*/x", "un*/*", "st*", "*_off/x", "[b-d]?[!a]*/x", "*d/*", "?????/x"]
TABLES = {
    "alert": "id, kind, subject, found_at, opened_at, told_at, acknowledged_at, acknowledged_by, resolved_at",
    "silence": "id, pattern, until, made_by, why, made_at",
    "notification": "id, receiver, alert, says, done_at",
    "operation": "id, kind, subject, doer",
}


@pytest.fixture
def database(postgresql: Settings) -> Iterator[Settings]:
    """A separate database in the form that release 0.1 leaves behind."""
    made = postgresql.model_copy(update={"database_name": DATABASE})
    prepare(made)
    execute(made, BACK)
    yield made
    password = postgresql.postgres_password.get_secret_value()
    superuser = postgresql.database() | {"user": "postgres", "dbname": "postgres", "password": password}
    with psycopg.connect(**superuser, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as it:
        yield it


def execute(settings: Settings, statements: bytes) -> list[str]:
    """Execute the statements and return the notices."""
    notices = list[str]()
    with connect(settings, autocommit=True) as connection:
        connection.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
        connection.execute(statements)
    return notices


def plant_alert(connection: Connection, kind: str, subject: str, moments: tuple[str, ...], notified: bool) -> None:
    columns = "".join(f", {moment}" for moment in moments)
    by = "ann" if "acknowledged_at" in moments else None
    row = connection.execute(
        f"INSERT INTO truelog.alert (kind, subject, cause, acknowledged_by, found_at{columns}) "
        f"VALUES (%s, %s, 'it is wrong', %s, now(){', now()' * len(moments)}) RETURNING id".encode(),
        (kind, subject, by),
    ).fetchone()
    assert row
    if notified:
        connection.execute(
            "INSERT INTO truelog.notification (receiver, alert, says, cause, done_at) "
            "SELECT receiver, %s, 'open', 'it is wrong', now() FROM unnest(%s::text[]) receiver",
            (row[0], RECEIVERS),
        )


def plant_silence(connection: Connection, pattern: str) -> None:
    connection.execute(
        "INSERT INTO truelog.silence (pattern, until, made_by, why) VALUES (%s, now() + interval '1 d', 'ann', '')",
        (pattern,),
    )
    connection.execute(
        "INSERT INTO truelog.operation (kind, subject, doer, about) VALUES ('silence', %s, 'ann', '')", (pattern,)
    )


def plant(settings: Settings) -> None:
    with connect(settings) as connection:
        for alert in ALERTS:
            plant_alert(connection, *alert)
        for pattern in (*LITERAL, *UNCHANGED, *EXTENDED):
            plant_silence(connection, pattern)


def content(settings: Settings) -> dict[str, list[tuple[object, ...]]]:
    with connect(settings) as connection:
        return {
            table: connection.execute(f"SELECT {columns} FROM truelog.{table} ORDER BY id".encode()).fetchall()
            for table, columns in TABLES.items()
        }


def columns(settings: Settings) -> set[object]:
    with connect(settings) as connection:
        rows = connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'truelog' "
            "AND table_name IN ('alert', 'silence', 'alert_kind_rename')"
        ).fetchall()
    return {name for (name,) in rows}


def test_the_database_and_the_code_rename_the_same_kinds(database: Settings) -> None:
    migrate(database)
    with connect(database) as connection:
        pairs = connection.execute("SELECT former, kind FROM truelog.alert_kind_rename").fetchall()
    assert sorted(pairs) == sorted(RENAMED.items())


def test_alerts_keep_all_but_their_kind(database: Settings) -> None:
    plant(database)
    before = content(database)
    migrate(database)
    after = content(database)
    renamed = [(id_, RENAMED.get(str(kind), kind), *rest) for id_, kind, *rest in before["alert"]]
    assert after["alert"] == renamed
    assert after["notification"] == before["notification"]
    with connect(database) as connection:
        opened = alert_store.open_alerts(connection)
    assert {(alert.key, alert.opened_as, alert.acknowledged_by) for alert in opened} == {
        ("stalled/page_views", "stands", None),
        ("application_down/stream", "down", "ann"),
        ("disk_low/home", None, None),
        ("dead_letters/dead_letter", None, None),
    }


def test_silences_cover_the_kinds_that_they_covered(database: Settings) -> None:
    """Python's own matching confirms this for every pattern and kind."""
    plant(database)
    migrate(database)
    with connect(database) as connection:
        rows = connection.execute("SELECT id, pattern, extends FROM truelog.silence ORDER BY id").fetchall()
    planted = dict(enumerate((*LITERAL, *UNCHANGED, *EXTENDED), 1))
    now = {RENAMED.get(kind, kind): kind for kind in (*RENAMED, "dead_letters")}
    assert now.keys() == KINDS.keys() - SINCE_THE_RENAME
    for id_, before in planted.items():
        after = [str(pattern) for row, pattern, extends in rows if id_ in (row, extends)]
        assert (len(after) > 1) is (before in EXTENDED), before
        for (kind, former), subject in product(now.items(), ("x", "y", "archive", "stream", "home")):
            covered = fnmatchcase(f"{former}/{subject}", before)
            assert not covered or any(fnmatchcase(f"{kind}/{subject}", each) for each in after), (before, kind)
            assert covered or not any(fnmatchcase(f"{kind}/{subject}", each) for each in after[1:]), (before, kind)


def test_the_end_of_a_silence_ends_what_extends_it(database: Settings) -> None:
    with connect(database) as connection:
        plant_silence(connection, "un*/archive")
    migrate(database)
    with connect(database) as connection:
        active = alert_store.active_silences(connection)
        assert {each.pattern for each in active} > {"un*/archive", "archive_corrupt/archive"}
        alert_store.end_silence(connection, 1, "bob")
        assert alert_store.active_silences(connection) == []


def test_there_and_back_and_there_again(database: Settings) -> None:
    plant(database)
    before, form = content(database), columns(database)
    migrate(database)
    there = content(database)
    for _ in range(2):
        assert [each for each in execute(database, BACK) if each.startswith("Close")] == []
        assert content(database) == before
        assert columns(database) == form
    migrate(database)
    again = content(database)
    assert [again[table] for table in ("alert", "notification", "operation")] == [
        there[table] for table in ("alert", "notification", "operation")
    ]
    assert [row[1:] for row in again["silence"]] == [row[1:] for row in there["silence"]]
    with connect(database) as connection:
        assert {alert.opened_as for alert in alert_store.open_alerts(connection)} == {"stands", "down", None}


def test_the_way_back_renames_what_0_2_has_made_and_names_incidents_to_close(database: Settings) -> None:
    migrate(database)
    with connect(database) as connection:
        plant_alert(connection, "stalled", "page_views", ("opened_at", "told_at"), True)
        plant_alert(connection, "lagging", "stream", ("opened_at",), False)
        for pattern in ("stalled/*", "archive_*/*"):
            plant_silence(connection, pattern)
    [notice] = [each for each in execute(database, BACK) if each.startswith("Close")]
    assert notice.endswith(": stalled/page_views")
    after = content(database)
    assert [kind for _, kind, *_ in after["alert"]] == ["stands", "behind"]
    patterns = {pattern for _, pattern, *_ in after["silence"]}
    assert patterns == {"stands/*", "archive_*/*", "unsound/*", "unaudited/*"}


def test_an_incident_open_under_both_names_is_one(database: Settings) -> None:
    """The other release's service ran on the database for a while."""
    with connect(database) as connection:
        plant_alert(connection, "stands", "page_views", ("opened_at", "told_at"), True)
        plant_alert(connection, "stalled", "page_views", ("opened_at",), False)
    migrate(database)
    with connect(database) as connection:
        [resolved] = alert_store.resolved_alerts(connection)
        assert (resolved.key, resolved.opened_as) == ("stalled/page_views", "stands")
        assert [alert.key for alert in alert_store.open_alerts(connection)] == ["stalled/page_views"]
        waiting = "SELECT receiver FROM truelog.notification WHERE says = 'resolved' AND done_at IS NULL ORDER BY 1"
        assert connection.execute(waiting).fetchall() == [(receiver,) for receiver in RECEIVERS]


def test_a_service_of_the_former_release_writes_the_present_kind(database: Settings) -> None:
    migrate(database)
    insert = "INSERT INTO truelog.alert (kind, subject, cause, found_at) VALUES ('stands', 'page_views', '', now())"
    with connect(database, autocommit=True) as connection:
        connection.execute(insert)
        assert connection.execute("SELECT kind FROM truelog.alert").fetchall() == [("stalled",)]
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute(insert)


def test_receivers_resolve_an_incident_under_the_key_by_which_they_know_it(
    database: Settings, listener: Listener
) -> None:
    """Only a new incident gets the new key."""
    settings = database.model_copy(
        update={
            "alertmanager_url": SecretStr(listener.url),
            "pagerduty_url": f"{listener.url}/v2/enqueue",
            "pagerduty_key": SecretStr("a-routing-key"),
        }
    )
    with connect(settings) as connection:
        plant_alert(connection, "stands", "page_views", ("opened_at", "told_at"), True)
    migrate(settings)
    source = Source("lag", ("stalled",), 1, lambda _: Observation())
    with connect(settings, autocommit=True) as connection:
        for sight in (Observation(), Observation(), Observation((Finding("stalled", "page_views", "again"),))):
            alert_store.record_observation(
                connection, source, sight, NotificationPolicy(RECEIVERS, FOUR_HOURS, application_of)
            )
            age(connection)
    for receiver in RECEIVERS:
        assert deliver(settings, receiver) == ["stalled/page_views resolved", "stalled/page_views open"]
    events = [body for body in listener.taken if isinstance(body, dict)]
    assert [(event["dedup_key"], event["event_action"]) for event in events] == [
        ("stands/page_views", "resolve"),
        ("stalled/page_views", "trigger"),
    ]
    labels = [body[0]["labels"] for body in listener.taken if isinstance(body, list)]
    assert [each["alertname"] for each in labels] == ["stands", "stalled"]


def test_a_command_accepts_a_former_name(database: Settings) -> None:
    migrate(database)
    with connect(database) as connection:
        plant_alert(connection, "stalled", "page_views", ("opened_at",), False)
        assert alert_store.acknowledge(connection, "stands/page_views", "ann").key == "stalled/page_views"
        made = alert_store.add_silence(connection, "down/*", timedelta(hours=1), by="ann", why="")
        assert made.pattern == "application_down/*"
