"""Alerts kept in PostgreSQL and told over HTTP: whatever becomes of a receiver, it is told each incident once."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import groupby

import psycopg
import pytest
from pydantic import SecretStr

from tests.library.alert_tables import age, emptied
from tests.library.listener import FAILS, HANGS, REFUSES, TAKES, Listener, listening
from truelog.alerts import alert_outbox, alert_store
from truelog.alerts.alert import Finding, Observation, Source, Transition
from truelog.alerts.alert_delivery import deliver
from truelog.alerts.alert_kind import KINDS
from truelog.alerts.alert_receiver import configured
from truelog.storage import audit_trail
from truelog.storage.database import Connection
from truelog.support.errors import BadInput, NotSetUp, ReceiverDown
from truelog.support.http_client import post_json
from truelog.support.settings import Settings

KIND = "application_down"
SOURCE = Source("applications", (KIND,), 1, lambda _: Observation())
FOUR_HOURS = timedelta(hours=4)
TOLD = ["alertmanager", "pagerduty"]


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as it:
        yield it


ADDRESSES = [
    "",
    "nowhere",
    "ftp://127.0.0.1/",
    "http://",
    "http://127.0.0.1:a-secret-port/",
    "http://127.0.0.1/a secret",
]


@pytest.fixture
def database(postgresql: Settings) -> Iterator[Connection]:
    with emptied(postgresql) as connection:
        yield connection


@pytest.fixture
def told(postgresql: Settings, database: Connection, listener: Listener) -> Settings:
    """Settings by which one server is told as an Alertmanager and as PagerDuty; it is impatiently waited for."""
    return postgresql.model_copy(
        update={
            "alertmanager_url": SecretStr(listener.url),
            "alertmanager_token": SecretStr("a-token"),
            "pagerduty_url": f"{listener.url}/v2/enqueue?x=1",
            "pagerduty_key": SecretStr("a-routing-key"),
            "alert_answer_seconds": 0.3,
        }
    )


def look(database: Connection, *subjects: str, cause: str = "it died", blind: bool = False) -> None:
    sight = Observation(tuple(Finding(KIND, subject, cause) for subject in subjects), blind=blind)
    alert_store.record_observation(database, SOURCE, sight, TOLD, FOUR_HOURS)


def over(database: Connection) -> None:
    """Nothing is wrong any more, for long enough."""
    look(database)
    age(database)
    look(database)


def test_an_incident_from_its_first_moment_to_its_last(database: Connection) -> None:
    look(database, "one")
    look(database, "one", "two", cause="it hangs")
    assert [(each.key, each.cause) for each in alert_store.open_alerts(database)] == [
        ("application_down/one", "it hangs"),
        ("application_down/two", "it hangs"),
    ]
    look(database, "two", blind=True)
    over(database)
    assert alert_store.open_alerts(database) == []
    assert {each.key for each in alert_store.resolved_alerts(database)} == {
        "application_down/one",
        "application_down/two",
    }
    assert len(alert_store.resolved_alerts(database, limit=1)) == 1
    look(database, "one")
    assert [each.key for each in alert_store.open_alerts(database)] == ["application_down/one"]


def test_the_database_itself_refuses_a_second_one_that_is_open(database: Connection) -> None:
    look(database, "one")
    with pytest.raises(psycopg.errors.UniqueViolation):
        database.execute(
            "INSERT INTO truelog.alert (kind, subject, cause, found_at) VALUES ('application_down', 'one', '', now())"
        )


def test_who_acknowledges_first_is_remembered_and_nobody_is_told_again(database: Connection) -> None:
    look(database, "one")
    assert alert_store.acknowledge(database, "application_down/one", "ann").acknowledged_by == "ann"
    assert alert_store.acknowledge(database, "application_down/one", "bob").acknowledged_by == "ann"
    age(database, timedelta(hours=5))
    look(database, "one")
    assert said(database) == {name: [Transition.OPEN] for name in TOLD}
    for key in ("application_down/two", "application_down"):
        with pytest.raises(BadInput, match="truelog alerts"):
            alert_store.acknowledge(database, key, "ann")


def test_a_silence_holds_until_it_ends_or_is_ended(database: Connection) -> None:
    made = alert_store.add_silence(database, "application_down/*", timedelta(hours=2), by="ann", why="a new disk")
    assert alert_store.active_silences(database) == [made]
    assert (made.by, made.why) == ("ann", "a new disk")
    look(database, "one")
    assert [each.key for each in alert_store.open_alerts(database)] == ["application_down/one"]
    assert said(database) == {}
    assert made.id is not None
    alert_store.end_silence(database, made.id, "bob")
    assert alert_store.active_silences(database) == []
    noted = [(each.kind, each.subject, each.doer) for each in audit_trail.latest_operations(database, 2)]
    assert noted == [("unsilence", "application_down/*", "bob"), ("silence", "application_down/*", "ann")]
    look(database, "one")
    assert said(database) == {name: [Transition.OPEN] for name in TOLD}
    with pytest.raises(BadInput, match="no silence"):
        alert_store.end_silence(database, made.id, "bob")
    for pattern, hours in (("", 1), ("*", 0), ("*", -1)):
        with pytest.raises(BadInput, match="needs a pattern"):
            alert_store.add_silence(database, pattern, timedelta(hours=hours), by="ann", why="")


def said(database: Connection) -> dict[str, list[str]]:
    """What each receiver is told, was told, or refused, in order."""
    rows: list[tuple[str, str]] = database.execute(  # type: ignore[assignment]
        "SELECT receiver, says FROM truelog.notification ORDER BY receiver, id"
    ).fetchall()
    return {name: [says for _, says in of] for name, of in groupby(rows, key=lambda row: row[0])}


def test_only_who_knows_of_an_incident_is_told_its_end_and_nobody_is_told_again_before_the_first_time(
    database: Connection,
) -> None:
    sight = Observation((Finding(KIND, "one", "it died"),))
    alert_store.record_observation(database, SOURCE, sight, ["alertmanager"], FOUR_HOURS)
    age(database, timedelta(hours=5))
    alert_store.record_observation(database, SOURCE, sight, ["alertmanager"], FOUR_HOURS)
    over(database)
    assert said(database) == {"alertmanager": [Transition.OPEN, Transition.RESOLVED]}


def test_a_receiver_that_fails_hangs_goes_and_comes_back_is_told_each_incident_once(
    told: Settings, database: Connection, listener: Listener
) -> None:
    """Incidents begin and end in each of its moods; it is tried each time, and takes nothing before the end."""
    assert configured(told) == TOLD

    def tried() -> None:
        for name in TOLD:
            with pytest.raises(ReceiverDown, match=f"{name} was not told application_down/one open: it"):
                deliver(told, name)

    look(database, "one", "two")
    for mood in (FAILS, HANGS):
        listener.mood = mood
        tried()
    over(database)
    listener.away()
    look(database, "two", "three")
    tried()
    listener.back()

    begun = [
        "application_down/one open",
        "application_down/two open",
        "application_down/one resolved",
        "application_down/two resolved",
    ]
    begun += ["application_down/two open", "application_down/three open"]
    assert [deliver(told, name) for name in TOLD] == [begun, begun]
    over(database)
    ended = ["application_down/two resolved", "application_down/three resolved"]
    assert [deliver(told, name) for name in TOLD] == [ended, ended]
    assert [deliver(told, name) for name in TOLD] == [[], []]
    paged = [(body["dedup_key"], body["event_action"]) for body in listener.taken if isinstance(body, dict)]
    assert {key: [action for of, action in paged if of == key] for key in sorted({key for key, _ in paged})} == {
        "application_down/one": ["trigger", "resolve"],
        "application_down/three": ["trigger", "resolve"],
        "application_down/two": ["trigger", "resolve"] * 2,
    }
    assert len(listener.taken) == 2 * len(paged)


def test_what_a_receiver_refuses_for_good_holds_up_nothing_and_is_kept_with_its_reason(
    told: Settings, database: Connection, listener: Listener
) -> None:
    listener.mood = REFUSES
    look(database, "one")
    assert deliver(told, "pagerduty") == []
    listener.mood = TAKES
    look(database, "one", "two")
    assert deliver(told, "pagerduty") == ["application_down/two open"]
    kept = "SELECT failed, tries FROM truelog.notification WHERE receiver = 'pagerduty' ORDER BY id"
    assert database.execute(kept).fetchall() == [("400: ", 1), (None, 1)]


def test_what_waits_too_long_is_known(told: Settings, database: Connection, listener: Listener) -> None:
    listener.mood = FAILS
    look(database, "one")
    with pytest.raises(ReceiverDown):
        deliver(told, "pagerduty")
    assert alert_outbox.count_overdue(database, TOLD, 60) == []
    assert alert_outbox.count_overdue(database, TOLD, 0) == [
        "alertmanager: it was not tried",
        "pagerduty: it answered 503: ",
    ]
    assert alert_outbox.count_overdue(database, ["email"], 0) == []


def test_what_ended_long_ago_is_forgotten_and_nothing_else(
    told: Settings, database: Connection, listener: Listener
) -> None:
    """What is open stays, however old it is, and what somebody is still to be told."""
    for pattern, hours in (("ended/*", 1), ("holds/*", 9999)):
        alert_store.add_silence(database, pattern, timedelta(hours=hours), by="ann", why="")
    look(database, "told", "waits", "open")
    look(database, "open")
    age(database)
    look(database, "open")
    deliver(told, "alertmanager")
    assert alert_store.delete_old(database, timedelta(days=90)) == 0
    database.execute(
        "UPDATE truelog.notification SET done_at = now() "
        "WHERE alert = (SELECT id FROM truelog.alert WHERE subject = 'told')"
    )
    age(database, timedelta(days=91))
    assert alert_store.delete_old(database, timedelta(days=90)) == 1
    assert [each.key for each in alert_store.resolved_alerts(database)] == ["application_down/waits"]
    assert [each.key for each in alert_store.open_alerts(database)] == ["application_down/open"]
    assert [each.pattern for each in alert_store.active_silences(database)] == ["holds/*"]
    deliver(told, "pagerduty")
    assert alert_store.delete_old(database, timedelta(days=90)) == 1
    assert alert_store.resolved_alerts(database) == []
    assert database.execute("SELECT count(*) FROM truelog.silence").fetchone() == (1,)
    assert said(database) == {name: [Transition.OPEN] for name in TOLD}


def test_alertmanager_is_told_in_its_own_words(told: Settings, database: Connection, listener: Listener) -> None:
    look(database, "one", cause='<b>"it died"</b>')
    deliver(told, "alertmanager")
    over(database)
    deliver(told, "alertmanager")
    [opened], [resolved] = listener.taken
    assert listener.paths == ["/api/v2/alerts"] * 2
    assert listener.headers[0]["Authorization"] == "Bearer a-token"
    assert opened["labels"] == resolved["labels"]
    assert opened["labels"] == {
        "alertname": KIND,
        "severity": "critical",
        "service": "truelog",
        "subject": "one",
    }
    assert opened["annotations"] == {
        "summary": "the application one does not run, or has hung",
        "cause": '<b>"it died"</b>',
        "first_step": KINDS[KIND].first,
        "runbook_url": "docs/runbooks/application_down.md",
        "former_kind": "down",
    }
    assert opened["generatorURL"] == f"http://127.0.0.1:{told.airflow_port}/dags/stream_one"
    assert opened["startsAt"] < resolved["endsAt"] < opened["endsAt"]
    assert resolved["annotations"]["summary"].startswith("resolved: ")


def test_pagerduty_is_told_in_its_own_words(told: Settings, database: Connection, listener: Listener) -> None:
    look(database, "one")
    deliver(told, "pagerduty")
    over(database)
    deliver(told, "pagerduty")
    opened, resolved = listener.taken
    assert listener.paths == ["/v2/enqueue?x=1"] * 2
    assert resolved == {"routing_key": "a-routing-key", "event_action": "resolve", "dedup_key": "application_down/one"}
    assert (opened["routing_key"], opened["event_action"], opened["dedup_key"]) == (
        "a-routing-key",
        "trigger",
        "application_down/one",
    )
    payload = opened["payload"]
    assert (payload["severity"], payload["component"], payload["class"]) == ("critical", "one", KIND)
    assert payload["custom_details"]["cause"] == "it died"


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_is_none_is_told_of_and_not_shown(address: str) -> None:
    with pytest.raises((NotSetUp, ReceiverDown)) as wrong:
        post_json(address, {}, {}, 1)
    assert "secret" not in str(wrong.value)
    assert wrong.value.__suppress_context__ or isinstance(wrong.value.__cause__, OSError)


def test_a_credential_that_http_cannot_carry_is_not_shown(listener: Listener) -> None:
    with pytest.raises(ReceiverDown, match="its credential") as wrong:
        post_json(listener.url, {}, {"Authorization": "Bearer a-secret\nkey"}, 1)
    assert "a-secret" not in str(wrong.value)


def test_whatever_a_cause_holds_it_is_kept(database: Connection) -> None:
    look(database, "one", cause="U+0000 is \0, " + "and so on" * 1000)
    [alert] = alert_store.open_alerts(database)
    assert alert.cause.startswith("U+0000 is  , and so on")
    assert len(alert.cause) == 1000


def test_no_secret_is_told_to_anybody_else(
    told: Settings, database: Connection, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in what is raised and kept, nor in a log."""
    secret = told.model_copy(
        update={
            "alertmanager_url": SecretStr(f"{listener.url}/a-secret-path"),
            "pagerduty_url": "http://127.0.0.1:1/v2",
        }
    )
    caplog.set_level(0)
    listener.mood = FAILS
    look(database, "one")
    said = []
    for name in TOLD:
        with pytest.raises(ReceiverDown) as down:
            deliver(secret, name)
        said.append(str(down.value))
    kept = database.execute("SELECT string_agg(failed, ' ') FROM truelog.notification").fetchone()
    everything = f"{said} {kept} {caplog.text} {secret!r}"
    for word in ("a-secret-path", "a-routing-key", "a-token"):
        assert word not in everything
