"""The exceptions that Truelog raises on purpose.

TruelogError
├── Stale            a merge does not begin at its view's position
├── Gap              a batch begins past its view's position: the records in between would be lost
├── Fenced           another process now holds the application's lease
├── LeaseInterrupted a process has lost the lock of its lease and may take it again
├── StagingTorn      the staged rows differ from the rows that the executors loaded
├── CodeChanged      a view's code differs from the code that made its table
├── MeaningChanged   an event type has a version or a reading that this process does not know
├── NotForgotten     an erasure cannot finish a step yet
├── NotMade          a view's table does not exist yet
├── CatalogBehind    the catalog is older than the archive in the bucket
├── ArchiveCorrupt   files of the archive are missing from the bucket
├── TopicRecreated   a topic's id differs from the id in the positions
├── TopicRefused     a topic cannot be read safely (CreateTime, fewer partitions …)
├── BadDeclaration   a file in events/ or views/ breaks the rules
├── TooManyExcluded  a view's transform fails on too many records
├── BaseAltered      the rows from which a comparison begins were changed
├── ArchiveBehind    the archive has not reached the requested positions
├── LogCut           the log has lost records that a reader had already read
├── LeaderChanged    a partition's leader changed while a batch was read
├── LogLost          the log dropped records before they were archived
├── BadInput         a file or a query from the user cannot be read
├── QueryTooSlow     a query on the archive reached its time limit
├── NotSetUp         settings or jars are missing or wrong
├── ReadsOnly        this environment reads the events of another one, and writes none
├── CaptureRefused   a table cannot be captured as it is
├── SchemaRefused    the database's schema is newer than this release, or too old for it
├── Resync           a relay's rows do not continue where they were published last
├── CrashLoop        an application keeps exiting soon after each start
├── AirflowRefused   Airflow rejected a request
├── RunFailed        a DAG run did not succeed
├── RequestRefused   an HTTP request is rejected with a status code
├── ReceiverDown     an alert receiver did not accept a notification; a retry may succeed
├── NoticeRefused    an alert receiver rejected a notification; no retry will succeed
└── ServiceDown      a service did not become ready in time
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any


class TruelogError(Exception):
    """Base class of the errors that a user can act on. The message says what to do."""


class Stale(TruelogError):
    """A merge does not begin at its view's position."""


class Gap(TruelogError):
    """A batch begins past its view's position, so the records in between would be lost."""


class NotForgotten(TruelogError):
    """An erasure cannot finish a step yet. Nothing is undone: the command may be repeated."""


class Fenced(TruelogError):
    """Another process holds the lease that this process needs."""


class LeaseInterrupted(TruelogError):
    """A process has lost the connection that holds the lock of its lease, and may take the lease again."""


class StagingTorn(TruelogError):
    """Staged rows differ in count or hash from the executors' reports."""


class CodeChanged(TruelogError):
    """A view's fingerprint differs from the fingerprint recorded with its table."""


class NotReady(TruelogError):
    """Readers cannot move to a version of a view yet."""


class MeaningChanged(TruelogError):
    """An event type has a version or a reading that this process does not know. The process must load them again."""


class NotMade(TruelogError):
    """No application has created the view's table yet."""


class CatalogBehind(TruelogError):
    """The catalog's version of an archive table is older than the version in the bucket."""


class RegistryBehind(TruelogError):
    """The database lacks event versions that the bucket contains, because it was restored from a backup."""


class ArchiveCorrupt(TruelogError):
    """Files of an archive table are missing from the bucket or incomplete."""


class TopicRecreated(TruelogError):
    """A topic was deleted and created again, so its offsets now refer to other records."""


class PartitionsAdded(TruelogError):
    """A topic has got more partitions, so the events of a key may be in two of them without a common order."""


class TopicRefused(TruelogError):
    """A topic does not meet a condition that Truelog requires in order to trust the topic's records."""


class BadDeclaration(TruelogError):
    """The platform cannot support the declaration of an event type or a view."""


class TooManyExcluded(TruelogError):
    """A view's transform fails on so many records that leaving them out would make the view wrong."""


class BaseAltered(TruelogError):
    """The rows from which an incremental comparison begins were changed."""


class ArchiveBehind(TruelogError):
    """The archive ends before the requested positions."""


class LogCut(TruelogError):
    """The log has lost records that a reader had already read. `cuts` lists the partitions."""

    def __init__(self, reason: str, cuts: Sequence[Any]) -> None:
        super().__init__(reason)
        self.cuts = cuts


class LeaderChanged(TruelogError):
    """A partition's leader changed while a batch was read, so the batch must be repeated."""


class LogLost(TruelogError):
    """Retention deleted records before they were archived."""


class BadInput(TruelogError):
    """The user's input cannot be read. The user must correct it before a retry."""


class QueryTooSlow(TruelogError):
    """A query on the archive did not finish within its time limit."""


class CaptureRefused(TruelogError):
    """A table cannot be captured. The message says why, and the cure."""


class SchemaRefused(TruelogError):
    """The database's schema is newer than this release, or too old for its migrations."""


class NotSetUp(TruelogError):
    """Required settings or jars are missing or wrong."""


class ReadsOnly(TruelogError):
    """This environment reads the events of another one, and writes none. The other one has to do it."""


class Resync(TruelogError):
    """A relay's rows do not continue where they were published last, so it would skip or repeat rows."""


class CrashLoop(TruelogError):
    """An application exited right after a start, or has exited too often recently.

    In the second case, the application is not restarted before `paused_until`.
    """

    def __init__(self, reason: str, paused_until: datetime | None) -> None:
        super().__init__(reason)
        self.paused_until = paused_until


class AirflowRefused(TruelogError):
    """Airflow rejected a request. The message contains the reason."""


class RunFailed(TruelogError):
    """A DAG run did not succeed. The message lists its tasks and their states."""


class RequestRefused(TruelogError):
    """An HTTP request is rejected. The client may retry after `retry_after` seconds."""

    def __init__(self, status: int, reason: str, *, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after


class ReceiverDown(TruelogError):
    """An alert receiver did not accept a notification. A retry may succeed."""


class NoticeRefused(TruelogError):
    """An alert receiver rejected a notification as invalid. No retry will succeed."""


class ServiceDown(TruelogError):
    """A service did not answer before the deadline."""


class FilesDeleted(ServiceDown):
    """An erasure or upkeep deleted files of the archive while they were read."""

    def __init__(self) -> None:
        super().__init__(
            "archive: an erasure or upkeep has deleted files while they were read. Repeat the question. If it happens "
            "again, run `truelog archive audit`."
        )


class NoRoom(ServiceDown):
    """So many events of accepted commands wait for the log that commands are refused."""


def describe(error: Exception) -> str:
    """The message of an error that a user can act on; of any other error, its type too."""
    return str(error) if isinstance(error, TruelogError) else f"{type(error).__name__}: {error}"
