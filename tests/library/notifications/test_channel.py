"""What each kind of channel gets, on real servers."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr, ValidationError

from tests.builders.notifications import older_incidents, set_rule
from tests.deadline import deadline, until
from tests.library.listener import REFUSES, Listener
from tests.library.mail_server import MailServer, mail_server
from tests.library.notifications.found_rows import FoundRows, hit
from tests.library.notifications.rounds import SECRET, deliver, look, require_try
from truelog.notifications import history
from truelog.notifications.channel import send
from truelog.notifications.message import Message
from truelog.storage.exact_json import Number
from truelog.support.setting_groups.notifications import Channel
from truelog.support.settings import Settings


def test_alertmanager_gets_an_alert_that_ends(told: Settings, hits: FoundRows, listener: Listener) -> None:
    alerted = Channel(kind="alertmanager", url=SecretStr(listener.url))
    settings = told.model_copy(update={"notification_channels": {"ops": alerted}})
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(hit("post:0:1"))
    deliver(settings, hits.connection)
    hits.change(removed=(hit("post:0:1"),))
    deliver(settings, hits.connection)
    [opened], [retracted] = listener.taken
    assert listener.paths == ["/api/v2/alerts"] * 2
    assert opened["labels"] == retracted["labels"]
    assert opened["labels"]["alertname"] == "outage"
    assert retracted["startsAt"] == opened["startsAt"] <= retracted["endsAt"] < opened["endsAt"]
    assert retracted["annotations"]["summary"].startswith("Retracted: ")


def test_an_alert_that_comes_after_its_incident_still_fires(
    told: Settings, hits: FoundRows, listener: Listener
) -> None:
    """Alertmanager would take an alert whose end is past for resolved."""
    alerted = Channel(kind="alertmanager", url=SecretStr(listener.url))
    settings = told.model_copy(update={"notification_channels": {"ops": alerted}})
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(hit("post:0:1"))
    look(hits.connection)
    older_incidents(hits.connection, timedelta(hours=2))
    deliver(settings, hits.connection)
    hits.change(removed=(hit("post:0:1"),))
    deliver(settings, hits.connection)
    [opened], [retracted] = listener.taken
    assert datetime.fromisoformat(opened["endsAt"]) > datetime.now(UTC) + timedelta(minutes=5)
    assert datetime.fromisoformat(retracted["endsAt"]) < datetime.now(UTC) + timedelta(minutes=5)


def test_pagerduty_gets_an_event_that_is_resolved(told: Settings, hits: FoundRows, listener: Listener) -> None:
    paged = Channel(kind="pagerduty", url=SecretStr(f"{listener.url}/v2/enqueue"), token=SecretStr(SECRET))
    settings = told.model_copy(update={"notification_channels": {"ops": paged}})
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(hit("post:0:1"))
    deliver(settings, hits.connection)
    hits.change(removed=(hit("post:0:1"),))
    deliver(settings, hits.connection)
    opened, resolved = listener.taken
    assert listener.paths == ["/v2/enqueue"] * 2
    assert resolved == {"routing_key": SECRET, "event_action": "resolve", "dedup_key": opened["dedup_key"]}
    assert (opened["routing_key"], opened["event_action"]) == (SECRET, "trigger")
    assert opened["payload"]["summary"] == "outages: Kafka is down: post:0:1"
    assert (opened["payload"]["component"], opened["payload"]["severity"]) == ("outages", "error")
    assert "Authorization" not in listener.headers[0]


@pytest.mark.parametrize("declared", [{"kind": "pagerduty"}, {"kind": "webhook"}, {"kind": "email", "token": "a"}])
def test_a_channel_without_an_address_is_refused(declared: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="needs"):
        Channel.model_validate(declared)


def to_ann_and_bob(server: MailServer) -> Channel:
    url = SecretStr(f"smtp://127.0.0.1:{server.port}")
    return Channel(kind="email", url=url, to="ann@example.org, bob@example.org")


def test_a_mail_has_the_text_and_the_row(told: Settings, hits: FoundRows) -> None:
    set_rule(hits.connection, "outage", "hit", "outages", template="$search\n$snippet")
    look(hits.connection)
    hits.change(hit("post:0:1"))
    with mail_server() as server:
        mailed = to_ann_and_bob(server)
        closed = mailed.model_copy(update={"url": SecretStr("smtp://ann:a-secret@127.0.0.1:1")})
        deliver(told.model_copy(update={"notification_channels": {"ops": closed}}), hits.connection)
        [failed] = history.deliveries(hits.connection, None, 1)
        assert failed["failed"] == "the mail server did not accept it: ConnectionRefusedError"
        settings = told.model_copy(update={"notification_channels": {"ops": mailed}})
        until(lambda: require_try(settings, hits.connection), 20, "a try")
    [mail] = server.mails
    assert "Subject: outages Kafka is down: post:0:1" in mail
    assert "bob@example.org" in mail
    assert "document: post:0:1" in mail
    [delivered] = history.deliveries(hits.connection, None, 1)
    assert f"Idempotency-Key: {delivered['id']}" in mail


def test_a_mail_that_one_address_refuses_for_now_goes_to_it_alone_later(told: Settings, hits: FoundRows) -> None:
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(hit("post:0:1"))
    with mail_server({"ann@example.org": 450}) as server:
        settings = told.model_copy(update={"notification_channels": {"ops": to_ann_and_bob(server)}})
        deliver(settings, hits.connection)
        until(lambda: require_try(settings, hits.connection), 20, "a second try")
        [failed] = history.deliveries(hits.connection, None, 1)
        assert failed["failed"] == "the mail server refused 1 of 2 addresses: 450"
        server.refused.clear()
        until(lambda: require_try(settings, hits.connection), 20, "a last try")
    [delivered] = history.deliveries(hits.connection, None, 1)
    assert (delivered["outcome"], delivered["failed"]) == ("delivered", None)
    assert server.addresses == [["bob@example.org"], ["ann@example.org"]]


def test_a_mail_is_refused_if_an_address_never_accepts_it_and_the_others_have_it(
    told: Settings, hits: FoundRows
) -> None:
    """While no address has it, it is tried again: the next try may have another mail server."""
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(hit("post:0:1"))
    with mail_server({"ann@example.org": 550, "bob@example.org": 554}) as server:
        settings = told.model_copy(update={"notification_channels": {"ops": to_ann_and_bob(server)}})
        deliver(settings, hits.connection)
        [failed] = history.deliveries(hits.connection, None, 1)
        assert (failed["outcome"], failed["failed"]) == (
            "waiting",
            "the mail server refused 2 of 2 addresses: 550, 554",
        )
        del server.refused["bob@example.org"]
        until(lambda: require_try(settings, hits.connection), 20, "a try")
    [refused] = history.deliveries(hits.connection, None, 1)
    assert (refused["outcome"], refused["failed"]) == ("refused", "the mail server refused 1 of 2 addresses: 550")
    assert server.addresses == [["bob@example.org"]]


def test_no_password_travels_unencrypted(told: Settings, hits: FoundRows) -> None:
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(hit("post:0:1"))
    with mail_server() as server:
        url = SecretStr(f"smtp://ann:a-secret@127.0.0.1:{server.port}")
        mailed = Channel(kind="email", url=url, to="ann@example.org")
        deliver(told.model_copy(update={"notification_channels": {"ops": mailed}}), hits.connection)
    [failed] = history.deliveries(hits.connection, None, 1)
    assert failed["failed"].startswith("the mail server does not offer STARTTLS, so the password would travel")
    assert "a-secret" not in failed["failed"]
    assert server.mails == []


def test_an_address_that_is_not_valid_is_never_quoted(told: Settings, hits: FoundRows) -> None:
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(hit("post:0:1"))
    for kind, url in (("webhook", "nowhere/a-secret"), ("email", "http://a-secret"), ("email", "smtp://[a-secret")):
        declared = Channel.model_validate({"kind": kind, "url": url, "to": "ann@example.org"})
        settings = told.model_copy(update={"notification_channels": {"ops": declared}})
        look(hits.connection)
        until(lambda given=settings: require_try(given, hits.connection), 20, "a try")  # type: ignore[misc]
        [failed] = history.deliveries(hits.connection, None, 1)
        assert failed["failed"]
        assert "a-secret" not in failed["failed"]


def test_the_routing_key_is_neither_listed_nor_logged(
    told: Settings, hits: FoundRows, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """PagerDuty refuses an event, and then does not answer."""
    paged = Channel(kind="pagerduty", url=SecretStr(f"{listener.url}/v2/enqueue"), token=SecretStr(SECRET))
    settings = told.model_copy(update={"notification_channels": {"ops": paged}})
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    listener.mood = REFUSES
    hits.change(hit("post:0:1"))
    deliver(settings, hits.connection)
    listener.away()
    hits.change(hit("post:0:2"))
    look(hits.connection)
    require_try(settings, hits.connection)
    listener.back()
    failed = [str(each["failed"]) for each in history.deliveries(hits.connection, None, 2)]
    assert all(each != "None" for each in failed), failed
    assert caplog.text.count("truelog.notifications") == 2
    assert SECRET not in caplog.text + " ".join(failed) + repr(paged)


def test_a_mail_without_a_valid_address_is_not_sent_and_says_why(told: Settings, hits: FoundRows) -> None:
    """Python's parser of addresses raises an IndexError. Nothing connects to the mail server."""
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(hit("post:0:1"))
    mailed = Channel(kind="email", url=SecretStr("smtp://127.0.0.1:1"), to="Ops <ops@")
    deliver(told.model_copy(update={"notification_channels": {"ops": mailed}}), hits.connection)
    [failed] = history.deliveries(hits.connection, None, 1)
    assert failed["failed"].startswith("the mail cannot be made (IndexError): give the channel's `to`")


def test_a_number_keeps_its_digits(listener: Listener) -> None:
    digits = "12345678901234567.890"
    body = {"notification": "many", "subject": "cart", "text": "a", "row": {"total": Number(digits)}}
    at = datetime.now(UTC)
    message = Message(uuid.uuid4(), uuid.uuid4(), "opened", body, at, at, at, 0)
    for kind in ("webhook", "pagerduty"):
        channel = Channel.model_validate({"kind": kind, "url": listener.url, "token": SECRET})
        send(channel, message, deadline(5))
    webhook, event = listener.taken
    assert repr(webhook["row"]["total"]) == repr(event["payload"]["custom_details"]["total"]) == digits
