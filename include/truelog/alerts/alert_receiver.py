"""Receivers of alerts: who is told, and in which words. None by default; each is set in the settings.

    alertmanager    POST /api/v2/alerts of any Alertmanager
    pagerduty       Events API v2
    email           by Airflow's connection `smtp_default`

Each tells incidents apart by the alert's key, so that a notification which it gets twice is one.
"""

import html
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from truelog.alerts.alert_kind import former_kind
from truelog.alerts.alert_outbox import Notice
from truelog.support.errors import ReceiverDown
from truelog.support.http_client import post_json
from truelog.support.settings import Settings

_FOR_EVER = timedelta(days=365)  # Alertmanager takes an alert without an end for resolved after five minutes


@dataclass(frozen=True)
class Receiver:
    """Whether it is set, and how it is told.

    Raises:
        ReceiverDown: it did not take it, and may take it later.
        NoticeRefused: it will never take it.
    """

    wanted: Callable[[Settings], bool]
    send: Callable[[Settings, Notice], None]


def configured(settings: Settings) -> list[str]:
    """The names of those that are set."""
    return [name for name, receiver in RECEIVERS.items() if receiver.wanted(settings)]


def links(settings: Settings, notice: Notice) -> tuple[str, str]:
    """Where to look, in Airflow, and what to read."""
    pages = settings.alert_pages_url or f"http://127.0.0.1:{settings.airflow_port}"
    page = f"{pages.rstrip('/')}/{notice.means.page.format(subject=notice.subject)}"
    return page, f"{settings.alert_runbooks_url.rstrip('/')}/{notice.kind}.md"


def alertmanager(settings: Settings, notice: Notice) -> list[dict[str, Any]]:
    page, runbook = links(settings, notice)
    ends = (notice.resolved_at if notice.resolved else None) or notice.opened_at + _FOR_EVER
    return [
        {
            "labels": {
                "alertname": notice.receivers_kind,
                "severity": notice.means.severity,
                "service": "truelog",
                "subject": notice.subject,
            },
            "annotations": {
                "summary": notice.summary,
                "cause": notice.cause,
                "first_step": notice.means.first,
                "runbook_url": runbook,
                "former_kind": former_kind(notice.kind) or "",
            },
            "startsAt": _written(notice.opened_at),
            "endsAt": _written(ends),
            "generatorURL": page,
        }
    ]


def pagerduty(settings: Settings, notice: Notice) -> dict[str, Any]:
    """Without the routing key, which is no part of what is said."""
    said: dict[str, Any] = {
        "event_action": "resolve" if notice.resolved else "trigger",
        "dedup_key": notice.receivers_key,
    }
    if notice.resolved:
        return said
    page, runbook = links(settings, notice)
    details = {"cause": notice.cause, "first_step": notice.means.first, "runbook": runbook}
    details |= {"former_kind": former_kind(notice.kind) or ""}
    return said | {
        "payload": {
            "summary": notice.summary[:1024],
            "source": socket.gethostname(),
            "severity": notice.means.severity,
            "timestamp": _written(notice.opened_at),
            "component": notice.subject,
            "class": notice.kind,
            "custom_details": details,
        },
        "client": "Truelog",
        "client_url": page,
    }


def email(settings: Settings, notice: Notice) -> tuple[str, str]:
    """Subject and body."""
    page, runbook = links(settings, notice)
    told = {"Cause": notice.cause, "First step": notice.means.first, "Runbook": runbook, "Look at": page}
    told |= {"Open since": _written(notice.opened_at), "Key": notice.key}
    rows = "".join(f"<p><b>{name}</b>: {html.escape(value)}</p>" for name, value in told.items())
    return " ".join(f"[{notice.means.severity}] {notice.summary}".split()), rows


def _to_alertmanager(settings: Settings, notice: Notice) -> None:
    token = settings.alertmanager_token.get_secret_value()
    url = settings.alertmanager_url.get_secret_value().rstrip("/") + "/api/v2/alerts"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    post_json(url, alertmanager(settings, notice), headers, settings.alert_answer_seconds)


def _to_pagerduty(settings: Settings, notice: Notice) -> None:
    key = settings.pagerduty_key.get_secret_value()
    said = {"routing_key": key} | pagerduty(settings, notice)
    post_json(settings.pagerduty_url, said, {}, settings.alert_answer_seconds)


def _to_email(settings: Settings, notice: Notice) -> None:
    from airflow.providers.smtp.hooks.smtp import SmtpHook

    subject, body = email(settings, notice)
    addresses = [each.strip() for each in settings.alert_email.split(",")]
    try:
        with SmtpHook() as smtp:
            smtp.send_email_smtp(to=addresses, subject=subject, html_content=body)
    except Exception as error:  # of the hook, of smtplib, of the socket: whatever it is, a later try may succeed
        raise ReceiverDown(f"email: {type(error).__name__}: {error}") from error


def _written(moment: datetime) -> str:
    return moment.isoformat()


RECEIVERS = {
    "alertmanager": Receiver(lambda settings: bool(settings.alertmanager_url.get_secret_value()), _to_alertmanager),
    "pagerduty": Receiver(lambda settings: bool(settings.pagerduty_key.get_secret_value()), _to_pagerduty),
    "email": Receiver(lambda settings: bool(settings.alert_email), _to_email),
}
