"""Everything that Truelog raises on purpose, as one tree.

TruelogError
├── Stale            a merge begins where its view does not stand
├── Gap              a batch begins past the view: records between would be lost
├── Fenced           the caller's lease is gone: another application runs now
├── StagingTorn      staged rows are not those that the executors loaded
├── CodeChanged      a view's code differs from the code that made its table
├── TopicRecreated   a topic's id is not the one that the positions were made on
├── TopicRefused     a topic cannot be read safely (CreateTime, fewer partitions …)
├── BadDeclaration   a file in events/ or views/ breaks the rules
├── ArchiveBehind    the archive has not reached the positions asked for
├── LogLost          the log dropped records before they were archived
├── BadInput         a file or a query that was given cannot be read
├── NotSetUp         settings or jars are missing or wrong
├── KeepsDying       an application ended again and again, soon after it was started
├── AirflowRefused   Airflow does not do what it was asked
├── RunFailed        a run of a DAG ended, and not well
├── RequestRefused   an HTTP request is turned away, with its status
├── ReceiverDown     a receiver of alerts did not take what it was to be told, and may take it later
├── NoticeRefused    a receiver of alerts will never take what it was to be told
└── ServiceDown      a service did not become ready in time
"""

from datetime import datetime


class TruelogError(Exception):
    """Base of every error that a user can act on; its text names the cure."""


class Stale(TruelogError):
    """A merge begins where its view does not stand."""


class Gap(TruelogError):
    """A batch begins past the view's position."""


class Fenced(TruelogError):
    """The lease that this application ran under is no longer its own."""


class StagingTorn(TruelogError):
    """Staged rows differ in count or hash from what the executors reported."""


class CodeChanged(TruelogError):
    """A view's fingerprint differs from the one its table was made with."""


class NotMade(TruelogError):
    """No application has made the view's table yet."""


class CatalogBehind(TruelogError):
    """The catalog knows an older state of an archive table than the bucket does."""


class TopicRecreated(TruelogError):
    """A topic was deleted and made again: its offsets mean other records now."""


class TopicRefused(TruelogError):
    """A topic breaks a condition under which its log can be trusted."""


class BadDeclaration(TruelogError):
    """An event type or a view is declared in a way that the platform cannot keep."""


class ArchiveBehind(TruelogError):
    """The archive ends before the positions asked for."""


class LogLost(TruelogError):
    """Retention took records that no archive holds."""


class BadInput(TruelogError):
    """What the user gave cannot be read; another try needs another input."""


class NotSetUp(TruelogError):
    """Settings or jars that the platform needs are missing or wrong."""


class KeepsDying(TruelogError):
    """An application ended as soon as it was started; or too often of late, and then it rests until `rests`."""

    def __init__(self, reason: str, rests: datetime | None) -> None:
        super().__init__(reason)
        self.rests = rests


class AirflowRefused(TruelogError):
    """Airflow answered that it will not, with its reason."""


class RunFailed(TruelogError):
    """A run of a DAG ended otherwise than it should; its tasks and their states are named."""


class RequestRefused(TruelogError):
    """An HTTP request is turned away; `retry_after` says in how many seconds it may come again."""

    def __init__(self, status: int, reason: str, *, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after


class ReceiverDown(TruelogError):
    """A receiver of alerts did not take a notification; another try may succeed."""


class NoticeRefused(TruelogError):
    """A receiver of alerts says that a notification is no good; another try would be refused as well."""


class ServiceDown(TruelogError):
    """A service did not answer before the deadline."""
