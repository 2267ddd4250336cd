"""Alerts in PostgreSQL and notifications over HTTP: a receiver gets each incident once, even after it has failed."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import groupby

import psycopg
import pytest
from pydantic import SecretStr

from tests.builders.alerts import an_alert
from tests.library.alert_tables import age, application_of, emptied
from tests.library.listener import FAILS, HANGS, REFUSES, TAKES, Listener, listening
from truelog.alerts import store as alert_store
from truelog.alerts.delivery import deliver
from truelog.alerts.kind import KINDS
from truelog.alerts.receiver import configured
from truelog.alerts.rules import Finding, NotificationPolicy, Observation, Source, Transition
from truelog.alerts.sources import outbox as alert_outbox
from truelog.storage import audit_trail
from truelog.storage.database import Connection
from truelog.support.errors import BadInput, NotSetUp, ReceiverDown
from truelog.support.http_client import post_json
from truelog.support.settings import Settings

KIND = "application_down"
SOURCE = Source("applications", (KIND,), 1, lambda _: Observation())
FOUR_HOURS = timedelta(hours=4)
RECEIVERS = ["alertmanager", "pagerduty"]


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
def receiving(postgresql: Settings, database: Connection, listener: Listener) -> Settings:
    """Settings for one server that acts as both Alertmanager and PagerDuty."""
    return postgresql.model_copy(
        update={
            "alertmanager_url": SecretStr(listener.url),
            "alertmanager_token": SecretStr("a-token"),
            "pagerduty_url": f"{listener.url}/v2/enqueue?x=1",
            "pagerduty_key": SecretStr("a-routing-key"),
        }
    )


def look(database: Connection, *subjects: str, cause: str = "it died", blind: bool = False) -> None:
    observation = Observation(tuple(Finding(KIND, subject, cause) for subject in subjects), blind=blind)
    alert_store.record_observation(
        database, SOURCE, observation, NotificationPolicy(RECEIVERS, FOUR_HOURS, application_of)
    )


def resolve_all(database: Connection) -> None:
    """Resolve all alerts with two looks that find no problem and are far enough apart."""
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
    resolve_all(database)
    assert alert_store.open_alerts(database) == []
    assert {each.key for each in alert_store.resolved_alerts(database)} == {
        "application_down/one",
        "application_down/two",
    }
    assert len(alert_store.resolved_alerts(database, limit=1)) == 1
    look(database, "one")
    assert [each.key for each in alert_store.open_alerts(database)] == ["application_down/one"]


def test_the_database_refuses_a_second_open_alert_with_the_same_key(database: Connection) -> None:
    look(database, "one")
    with pytest.raises(psycopg.errors.UniqueViolation):
        an_alert(database, "application_down", "one")


def test_the_first_acknowledgement_counts_and_ends_the_reminders(database: Connection) -> None:
    look(database, "one")
    assert alert_store.acknowledge(database, "application_down/one", "ann").acknowledged_by == "ann"
    assert alert_store.acknowledge(database, "application_down/one", "bob").acknowledged_by == "ann"
    age(database, timedelta(hours=5))
    look(database, "one")
    assert notifications(database) == {name: [Transition.OPEN] for name in RECEIVERS}
    for key in ("application_down/two", "application_down"):
        with pytest.raises(BadInput, match="truelog alerts"):
            alert_store.acknowledge(database, key, "ann")


def test_a_silence_holds_back_notifications_until_it_ends(database: Connection) -> None:
    made = alert_store.add_silence(database, "application_down/*", timedelta(hours=2), by="ann", why="a new disk")
    assert alert_store.active_silences(database) == [made]
    assert (made.by, made.why) == ("ann", "a new disk")
    look(database, "one")
    assert [each.key for each in alert_store.open_alerts(database)] == ["application_down/one"]
    assert notifications(database) == {}
    assert made.id is not None
    alert_store.end_silence(database, made.id, "bob")
    assert alert_store.active_silences(database) == []
    noted = [(each.kind, each.subject, each.doer) for each in audit_trail.latest_operations(database, 2)]
    assert noted == [("unsilence", "application_down/*", "bob"), ("silence", "application_down/*", "ann")]
    look(database, "one")
    assert notifications(database) == {name: [Transition.OPEN] for name in RECEIVERS}
    with pytest.raises(BadInput, match="No silence"):
        alert_store.end_silence(database, made.id, "bob")
    for pattern, hours in (("", 1), ("*", 0), ("*", -1)):
        with pytest.raises(BadInput, match="needs a key pattern"):
            alert_store.add_silence(database, pattern, timedelta(hours=hours), by="ann", why="")
    with pytest.raises(BadInput, match=r"a key is KIND/SUBJECT. Write 'application_down/\*' for a kind"):
        alert_store.add_silence(database, "application_down", timedelta(hours=1), by="ann", why="")


def notifications(database: Connection) -> dict[str, list[str]]:
    """Each receiver's notifications in order, delivered or not."""
    rows: list[tuple[str, str]] = database.execute(
        "SELECT receiver, says FROM truelog.notification ORDER BY receiver, id"
    ).fetchall()
    return {name: [says for _, says in group] for name, group in groupby(rows, key=lambda row: row[0])}


def test_a_resolution_needs_an_earlier_notification_and_so_does_a_reminder(
    database: Connection,
) -> None:
    observation = Observation((Finding(KIND, "one", "it died"),))
    alert_store.record_observation(
        database, SOURCE, observation, NotificationPolicy(["alertmanager"], FOUR_HOURS, application_of)
    )
    age(database, timedelta(hours=5))
    alert_store.record_observation(
        database, SOURCE, observation, NotificationPolicy(["alertmanager"], FOUR_HOURS, application_of)
    )
    resolve_all(database)
    assert notifications(database) == {"alertmanager": [Transition.OPEN, Transition.RESOLVED]}


def test_a_receiver_that_fails_hangs_and_disappears_gets_each_incident_once_in_the_end(
    receiving: Settings, database: Connection, listener: Listener
) -> None:
    """Incidents open and end during each failure. Each attempt fails until the receiver is back."""
    assert configured(receiving) == RECEIVERS

    impatient = receiving.model_copy(update={"alert_answer_seconds": 0.3})

    def attempt() -> None:
        for name in RECEIVERS:
            with pytest.raises(ReceiverDown, match=f"{name} did not accept application_down/one open: it"):
                deliver(impatient, name)

    look(database, "one", "two")
    for mood in (FAILS, HANGS):
        listener.mood = mood
        attempt()
    resolve_all(database)
    listener.away()
    look(database, "two", "three")
    attempt()
    listener.back()

    events = ("one open", "two open", "one resolved", "two resolved", "two open", "three open")
    first = [f"application_down/{each}" for each in events]
    assert [deliver(receiving, name) for name in RECEIVERS] == [first, first]
    resolve_all(database)
    then = ["application_down/two resolved", "application_down/three resolved"]
    assert [deliver(receiving, name) for name in RECEIVERS] == [then, then]
    assert [deliver(receiving, name) for name in RECEIVERS] == [[], []]
    paged = [(body["dedup_key"], body["event_action"]) for body in listener.taken if isinstance(body, dict)]
    assert {
        key: [action for paged_key, action in paged if paged_key == key] for key in sorted({key for key, _ in paged})
    } == {
        "application_down/one": ["trigger", "resolve"],
        "application_down/three": ["trigger", "resolve"],
        "application_down/two": ["trigger", "resolve"] * 2,
    }
    assert len(listener.taken) == 2 * len(paged)


def test_a_refused_notification_delays_no_other_and_its_reason_is_stored(
    receiving: Settings, database: Connection, listener: Listener
) -> None:
    listener.mood = REFUSES
    look(database, "one")
    assert deliver(receiving, "pagerduty") == []
    listener.mood = TAKES
    look(database, "one", "two")
    assert deliver(receiving, "pagerduty") == ["application_down/two open"]
    stored = "SELECT failed, tries FROM truelog.notification WHERE receiver = 'pagerduty' ORDER BY id"
    assert database.execute(stored).fetchall() == [("400: ", 1), (None, 1)]


def test_an_overdue_notification_is_reported(receiving: Settings, database: Connection, listener: Listener) -> None:
    listener.mood = FAILS
    look(database, "one")
    with pytest.raises(ReceiverDown):
        deliver(receiving, "pagerduty")
    assert alert_outbox.overdue(database, RECEIVERS, 60) == []
    assert alert_outbox.overdue(database, RECEIVERS, 0) == [
        "alertmanager: not attempted",
        "pagerduty: it answered 503: ",
    ]
    assert alert_outbox.overdue(database, ["email"], 0) == []


def test_only_alerts_and_silences_that_ended_long_ago_are_deleted(
    receiving: Settings, database: Connection, listener: Listener
) -> None:
    """An open alert stays, however old it is, and so does an alert with a waiting notification."""
    for pattern, hours in (("ended/*", 1), ("holds/*", 9999)):
        alert_store.add_silence(database, pattern, timedelta(hours=hours), by="ann", why="")
    look(database, "delivered", "waits", "open")
    look(database, "open")
    age(database)
    look(database, "open")
    deliver(receiving, "alertmanager")
    assert alert_store.delete_old(database, timedelta(days=90)) == 0
    database.execute(
        "UPDATE truelog.notification SET done_at = now() "
        "WHERE alert = (SELECT id FROM truelog.alert WHERE subject = 'delivered')"
    )
    age(database, timedelta(days=91))
    assert alert_store.delete_old(database, timedelta(days=90)) == 1
    assert [each.key for each in alert_store.resolved_alerts(database)] == ["application_down/waits"]
    assert [each.key for each in alert_store.open_alerts(database)] == ["application_down/open"]
    assert [each.pattern for each in alert_store.active_silences(database)] == ["holds/*"]
    deliver(receiving, "pagerduty")
    assert alert_store.delete_old(database, timedelta(days=90)) == 1
    assert alert_store.resolved_alerts(database) == []
    assert database.execute("SELECT count(*) FROM truelog.silence").fetchone() == (1,)
    assert notifications(database) == {name: [Transition.OPEN] for name in RECEIVERS}


def test_alertmanager_gets_its_own_format(receiving: Settings, database: Connection, listener: Listener) -> None:
    look(database, "one", cause='<b>"it died"</b>')
    deliver(receiving, "alertmanager")
    resolve_all(database)
    deliver(receiving, "alertmanager")
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
        "summary": "the one application is down or hung",
        "cause": '<b>"it died"</b>',
        "first_step": KINDS[KIND].first_step,
        "runbook_url": "docs/runbooks/application_down.md",
    }
    assert (
        opened["generatorURL"]
        == f"http://127.0.0.1:{receiving.airflow_port}/plugin/truelog/truelog/streams?application=one"
    )
    assert opened["startsAt"] < resolved["endsAt"] < opened["endsAt"]
    assert resolved["annotations"]["summary"].startswith("resolved: ")


def test_pagerduty_gets_its_own_format(receiving: Settings, database: Connection, listener: Listener) -> None:
    look(database, "one")
    deliver(receiving, "pagerduty")
    resolve_all(database)
    deliver(receiving, "pagerduty")
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
def test_the_error_about_a_bad_address_does_not_show_it(address: str) -> None:
    with pytest.raises((NotSetUp, ReceiverDown)) as error:
        post_json(address, {}, {}, 1)
    assert "secret" not in str(error.value)
    assert error.value.__suppress_context__ or isinstance(error.value.__cause__, OSError)


def test_the_error_about_a_bad_credential_does_not_show_it(listener: Listener) -> None:
    with pytest.raises(ReceiverDown, match="its credential") as error:
        post_json(listener.url, {}, {"Authorization": "Bearer a-secret\nkey"}, 1)
    assert "a-secret" not in str(error.value)


def test_any_cause_can_be_stored(database: Connection) -> None:
    look(database, "one", cause="U+0000 is \0, " + "and so on" * 1000)
    [alert] = alert_store.open_alerts(database)
    assert alert.cause.startswith("U+0000 is \u2400, and so on")
    assert len(alert.cause) == 1000


def test_secrets_reach_only_their_receiver(
    receiving: Settings, database: Connection, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """No error, stored reason or log contains a secret."""
    changed = receiving.model_copy(
        update={
            "alertmanager_url": SecretStr(f"{listener.url}/a-secret-path"),
            "pagerduty_url": "http://127.0.0.1:1/v2",
        }
    )
    caplog.set_level(0)
    listener.mood = FAILS
    look(database, "one")
    errors = []
    for name in RECEIVERS:
        with pytest.raises(ReceiverDown) as down:
            deliver(changed, name)
        errors.append(str(down.value))
    stored = database.execute("SELECT string_agg(failed, ' ') FROM truelog.notification").fetchone()
    everything = f"{errors} {stored} {caplog.text} {changed!r}"
    for word in ("a-secret-path", "a-routing-key", "a-token"):
        assert word not in everything


def test_a_folded_effect_is_open_and_no_receiver_is_notified_of_it(database: Connection) -> None:
    stalled = Source("lag", ("stalled",), 1, lambda _: Observation())
    policy = NotificationPolicy(RECEIVERS, FOUR_HOURS, application_of)
    findings = Observation((Finding("stalled", "cart", "no batch"),))
    look(database, "stream")
    alert_store.record_observation(database, stalled, findings, policy)
    assert alert_store.causes(database, application_of) == {"stalled/cart": "application_down/stream"}
    assert [each.key for each in alert_store.open_alerts(database)] == ["application_down/stream", "stalled/cart"]
    assert notifications(database) == {each: [Transition.OPEN] for each in RECEIVERS}
    resolve_all(database)
    alert_store.record_observation(database, stalled, findings, policy)
    assert alert_store.causes(database, application_of) == {}
    transitions = [Transition.OPEN, Transition.RESOLVED, Transition.OPEN]
    assert notifications(database) == dict.fromkeys(RECEIVERS, transitions)


def test_only_the_first_acknowledgement_is_recorded_as_an_operation(database: Connection) -> None:
    look(database, "acknowledged")
    for by in ("ann", "ben"):
        assert alert_store.acknowledge(database, "application_down/acknowledged", by).acknowledged_by == "ann"
    recorded = audit_trail.latest_operations(database, 10, "acknowledge")
    assert [each.doer for each in recorded if each.subject.endswith("/acknowledged")] == ["ann"]
