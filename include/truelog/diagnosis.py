"""Diagnosis: what is wrong with an application, where its row alone does not tell.

Silence says little by itself: where no ticks come, or Kafka is away, there is nothing to read, and another process
would find nothing either. One that is silent has hung only if a tick came after its last batch, long enough ago.
"""

from datetime import datetime

from truelog import application, ticks
from truelog.application import Status, Verdict
from truelog.errors import ServiceDown
from truelog.settings import Settings


def diagnose(settings: Settings, status: Status, now: datetime) -> Verdict | None:
    """The verdict on an application; of one that is silent, by what the log has for it."""
    allowed = application.patience(settings, status.application)
    found = application.verdict(status, allowed, now)
    since = status.batch_at or status.taken_at
    if found is not Verdict.HUNG or since is None:
        return found
    try:
        woken = ticks.first_since(settings, since)
    except ServiceDown:
        woken = None
    return application.silence(status, allowed, now, woken)
