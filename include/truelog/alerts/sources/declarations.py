"""Finds topics that an application has suspended, and event files that cannot be used."""

from truelog.alerts.rules import Finding, Observation
from truelog.control import event_files, topic_status
from truelog.control.topic_status import SuspendedTopic
from truelog.storage import db_snapshot
from truelog.support.settings import Settings

DECLARATION_KINDS = ("topic_suspended", "event_file_broken")


def observe(settings: Settings) -> Observation:
    """One finding for each topic, whatever the number of applications that have suspended it, and for each file."""
    with db_snapshot.read_snapshot(settings) as connection:
        suspended, broken = topic_status.suspended_topics(connection), event_files.broken_files(connection)
    by_topic: dict[str, list[SuspendedTopic]] = {}
    for each in suspended:
        by_topic.setdefault(each.topic, []).append(each)
    findings = [
        Finding("topic_suspended", topic, " ".join(f"{each.application}: {each.reason}" for each in rows))
        for topic, rows in by_topic.items()
    ]
    return Observation((*findings, *(Finding("event_file_broken", each.event, each.reason) for each in broken)))
