"""The input report: topics that an application has suspended, and event files that cannot be used."""

from collections.abc import Sequence
from dataclasses import dataclass

from truelog.control import event_files, topic_status
from truelog.control.event_files import BrokenFile
from truelog.control.topic_status import SuspendedTopic
from truelog.storage import db_snapshot
from truelog.support.settings import Settings


@dataclass(frozen=True)
class InputReport:
    """What the platform does not read at present."""

    suspended_topics: Sequence[SuspendedTopic] = ()
    broken_event_files: Sequence[BrokenFile] = ()


def input_report(settings: Settings) -> InputReport:
    """The report at this moment.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    with db_snapshot.read_snapshot(settings) as connection:
        return InputReport(topic_status.suspended_topics(connection), event_files.broken_files(connection))
