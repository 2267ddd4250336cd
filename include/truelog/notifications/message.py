"""Message: what a notification says, in the form of each kind of channel."""

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from typing import Any

from truelog.support.setting_groups.namespace import Names
from truelog.support.timestamps import to_text

_SUBJECT_LENGTH = 200  # characters
_SUMMARY_LENGTH = 1_024  # characters that PagerDuty accepts
_TO_BE_SEEN = timedelta(minutes=10)  # Alertmanager collects alerts of a group for five minutes by default


@dataclass(frozen=True)
class Message:
    """A notification that waits. `id` is the same in each try."""

    id: uuid.UUID
    incident: uuid.UUID
    says: str  # `opened`, `resolved`, `retracted` or `ended`
    body: dict[str, Any]
    opened_at: datetime
    until: datetime
    made_at: datetime
    tries: int
    names: Names = field(default_factory=Names)

    @property
    def key(self) -> str:
        """The key by which receivers know the message."""
        return self.names.for_receivers(self.id)

    @property
    def incident_key(self) -> str:
        """The key by which receivers know the incident. Two environments have the same ids for the same rules."""
        return self.names.for_receivers(self.incident)

    @property
    def text(self) -> str:
        """The text. A blank one names the rule and what it is about: PagerDuty refuses a blank summary."""
        text = str(self.body["text"])
        if not text.strip():
            text = f"{self.body['notification']}: {self.body['subject']}"
        return text if self.says == "opened" else f"{self.says.capitalize()}: {text}"


def webhook(message: Message) -> dict[str, Any]:
    about = {
        "id": message.key,
        "incident": message.incident_key,
        "says": message.says,
        "at": to_text(message.made_at),
    }
    return about | message.body | {"text": message.text}


def alertmanager(message: Message) -> list[dict[str, Any]]:
    """An alert that ends with its incident, so Alertmanager needs no further notification.

    Alertmanager is silent about an alert that has ended, so a late alert ends later than its incident.
    """
    late = datetime.now(UTC) + _TO_BE_SEEN
    ends = max(message.until, late) if message.says == "opened" else message.made_at
    return [
        {
            "labels": {
                "alertname": message.body["notification"],
                "service": "truelog-notifications",
                "subject": message.body["subject"],
                "incident": message.incident_key,
                **message.names.labels,
            },
            "annotations": {"summary": message.text},
            "startsAt": message.opened_at.isoformat(),
            "endsAt": max(ends, message.opened_at).isoformat(),
        }
    ]


def pagerduty(message: Message) -> dict[str, Any]:
    """The event without its routing key, which is a secret. PagerDuty recognises the incident by its id."""
    event: dict[str, Any] = {"event_action": "resolve", "dedup_key": message.incident_key}
    if message.says != "opened":
        return event
    return event | {
        "event_action": "trigger",
        "payload": {
            "summary": message.text[:_SUMMARY_LENGTH],
            "source": "truelog",
            "severity": "error",
            "timestamp": message.opened_at.isoformat(),
            "component": message.body["subject"],
            "class": message.body["notification"],
            "custom_details": message.body["row"],
        },
        "client": "Truelog",
    }


def mail(message: Message, sender: str, to: str) -> EmailMessage:
    made = EmailMessage()
    made["Subject"] = " ".join(message.text.split())[:_SUBJECT_LENGTH]
    made["From"], made["To"] = sender, to
    made["Message-ID"] = f"<{message.key}@truelog>"
    made["Idempotency-Key"] = message.key
    row = "\n".join(f"{name}: {value}" for name, value in message.body["row"].items())
    made.set_content(f"{message.text}\n\n{row}\n\nincident {message.incident_key}\n")
    return made
