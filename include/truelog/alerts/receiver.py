"""Alert receivers and the messages that they receive. By default, there are no receivers. The settings add receivers.

    alertmanager    POST /api/v2/alerts on any Alertmanager
    pagerduty       Events API v2
    email           the `smtp_default` connection in Airflow

Alertmanager and PagerDuty recognise an incident by its key, so a notification that arrives twice counts as one.
"""

import html
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from truelog.alerts.sources.outbox import Notification
from truelog.support.errors import ReceiverDown
from truelog.support.http_client import post_json
from truelog.support.settings import Settings

_NO_END = timedelta(days=365)  # Alertmanager resolves an alert that has no end time after five minutes


@dataclass(frozen=True)
class Receiver:
    """A receiver of alerts. `is_configured` checks the settings, and `send` delivers one notification.

    Raises:
        ReceiverDown: the receiver did not accept the notification, but a later attempt may succeed.
        NoticeRefused: the receiver will never accept the notification.
    """

    is_configured: Callable[[Settings], bool]
    send: Callable[[Settings, Notification], None]


def configured(settings: Settings) -> list[str]:
    """The names of the receivers that the settings configure."""
    return [name for name, receiver in RECEIVERS.items() if receiver.is_configured(settings)]


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


def _send_email(settings: Settings, notice: Notification) -> None:
    from airflow.providers.smtp.hooks.smtp import SmtpHook

    subject, body = email(settings, notice)
    addresses = [address.strip() for address in settings.alert_email.split(",")]
    try:
        with SmtpHook() as smtp:
            smtp.send_email_smtp(to=addresses, subject=subject, html_content=body)
    except Exception as error:  # the hook, smtplib and sockets raise many error types; a later attempt may succeed
        raise ReceiverDown(f"email: {type(error).__name__}: {error}") from error


RECEIVERS = {
    "alertmanager": Receiver(
        lambda settings: bool(settings.alertmanager_url.get_secret_value()), _send_to_alertmanager
    ),
    "pagerduty": Receiver(lambda settings: bool(settings.pagerduty_key.get_secret_value()), _send_to_pagerduty),
    "email": Receiver(lambda settings: bool(settings.alert_email), _send_email),
}
