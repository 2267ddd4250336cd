"""Alert receivers and the messages that they receive. By default, there are no receivers. The settings add receivers.

    alertmanager    POST /api/v2/alerts on any Alertmanager
    pagerduty       Events API v2
    email           the `smtp_default` connection in Airflow. Each further address is a receiver `email_2`, `email_3` …

Alertmanager and PagerDuty recognise an incident by its key, so a notification that arrives twice counts as one.
"""

import html
import smtplib
import socket
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

from truelog.alerts.sources.outbox import Notification
from truelog.support.errors import NotSetUp, ReceiverDown
from truelog.support.http_client import post_json
from truelog.support.settings import Settings

_NO_END = timedelta(days=365)  # Alertmanager resolves an alert that has no end time after five minutes


def configured(settings: Settings) -> list[str]:
    """The names of the receivers that the settings configure."""
    return list(_receivers(settings))


def send(settings: Settings, receiver: str, notice: Notification) -> None:
    """Deliver one notification.

    Raises:
        NotSetUp: the settings do not configure the receiver.
        ReceiverDown: the receiver did not accept the notification, but a later attempt may succeed.
        NoticeRefused: the receiver will never accept the notification.
    """
    if (deliver := _receivers(settings).get(receiver)) is None:
        raise NotSetUp(f"the settings do not configure the alert receiver {receiver}: see docs/alerts.md")
    deliver(settings, notice)


def _receivers(settings: Settings) -> dict[str, Callable[[Settings, Notification], None]]:
    """How to deliver to each receiver that the settings configure.

    Each address is a receiver. Otherwise, an address that refuses a mail would delay or repeat the mails of the others.
    """
    found: dict[str, Callable[[Settings, Notification], None]] = {}
    if settings.alertmanager_url.get_secret_value():
        found["alertmanager"] = _send_to_alertmanager
    if settings.pagerduty_key.get_secret_value():
        found["pagerduty"] = _send_to_pagerduty
    addresses = filter(None, map(str.strip, settings.alert_email.split(",")))
    for number, address in enumerate(addresses, 1):
        found["email" if number == 1 else f"email_{number}"] = partial(_send_email, address)
    return found


def links(settings: Settings, notice: Notification) -> tuple[str, str]:
    """The addresses of the Airflow page and the runbook."""
    pages = settings.alert_pages_url or f"http://127.0.0.1:{settings.airflow_port}"
    page = f"{pages.rstrip('/')}/{notice.definition.page.format(subject=quote(notice.subject, safe=''))}"
    return page, f"{settings.alert_runbooks_url.rstrip('/')}/{notice.kind}.md"


def alertmanager(settings: Settings, notice: Notification) -> list[dict[str, Any]]:
    page, runbook = links(settings, notice)
    ends = (notice.resolved_at if notice.resolved else None) or notice.opened_at + _NO_END
    return [
        {
            "labels": {
                "alertname": notice.kind,
                "severity": notice.definition.severity,
                "service": "truelog",
                "subject": notice.subject,
                **settings.names.labels,
            },
            "annotations": {
                "summary": notice.summary,
                "cause": notice.cause,
                "first_step": notice.definition.first_step,
                "runbook_url": runbook,
            },
            "startsAt": notice.opened_at.isoformat(),
            "endsAt": ends.isoformat(),
            "generatorURL": page,
        }
    ]


def pagerduty(settings: Settings, notice: Notification) -> dict[str, Any]:
    """The event without its routing key, which is a secret."""
    event: dict[str, Any] = {
        "event_action": "resolve" if notice.resolved else "trigger",
        "dedup_key": settings.names.for_receivers(notice.key),
    }
    if notice.resolved:
        return event
    page, runbook = links(settings, notice)
    details = {"cause": notice.cause, "first_step": notice.definition.first_step, "runbook": runbook}
    return event | {
        "payload": {
            "summary": notice.summary[:1024],
            "source": socket.gethostname(),
            "severity": notice.definition.severity,
            "timestamp": notice.opened_at.isoformat(),
            "component": notice.subject,
            "class": notice.kind,
            "custom_details": details,
        },
        "client": "Truelog",
        "client_url": page,
    }


def email(settings: Settings, notice: Notification) -> tuple[str, str]:
    """The subject and the HTML body of an email."""
    page, runbook = links(settings, notice)
    rows = {"Cause": notice.cause, "First step": notice.definition.first_step, "Runbook": runbook, "Page": page}
    rows |= {"Open since": notice.opened_at.isoformat(), "Key": settings.names.for_receivers(notice.key)}
    body = "".join(f"<p><b>{name}</b>: {html.escape(value)}</p>" for name, value in rows.items())
    return " ".join(f"[{notice.definition.severity}] {notice.summary}".split()), body


def _send_to_alertmanager(settings: Settings, notice: Notification) -> None:
    token = settings.alertmanager_token.get_secret_value()
    url = settings.alertmanager_url.get_secret_value().rstrip("/") + "/api/v2/alerts"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    post_json(url, alertmanager(settings, notice), headers, settings.alert_answer_seconds)


def _send_to_pagerduty(settings: Settings, notice: Notification) -> None:
    key = settings.pagerduty_key.get_secret_value()
    event = {"routing_key": key} | pagerduty(settings, notice)
    post_json(settings.pagerduty_url, event, {}, settings.alert_answer_seconds)


def _send_email(address: str, settings: Settings, notice: Notification) -> None:
    """Send an email. The texts of errors may quote addresses, so the log has their types and codes only."""
    from airflow.providers.smtp.hooks.smtp import SmtpHook

    subject, body = email(settings, notice)
    try:
        with SmtpHook() as smtp:
            smtp.send_email_smtp(to=[address], subject=subject, html_content=body)
    except smtplib.SMTPRecipientsRefused as error:
        [(code, _)] = error.recipients.values()
        raise ReceiverDown(f"the mail server refused the address: {code}") from None
    except smtplib.SMTPResponseException as error:
        raise ReceiverDown(f"the mail server answered {error.smtp_code}: {type(error).__name__}") from None
    except Exception as error:  # the hook, smtplib and sockets raise many error types; a later attempt may succeed
        raise ReceiverDown(f"the `smtp_default` connection failed: {type(error).__name__}") from None
