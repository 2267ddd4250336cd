"""The guard of a batch: the log must be the log that the view has counted, before and after the batch is read."""

from dataclasses import dataclass

from truelog.control import log_cuts
from truelog.control.log_cuts import ReaderState
from truelog.kernel import merge
from truelog.log.leader_epochs import Epochs
from truelog.log.positions import Positions
from truelog.log.topic_health import TopicGuard
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown, TruelogError
from truelog.tables.compiled_view import CompiledView


@dataclass(frozen=True)
class LogGuard:
    """Guards the batches of views. Without `topics`, it requires nothing."""

    topics: TopicGuard | None = None

    def take_epochs(self, positions: Positions) -> Epochs | None:
        """The leader epochs before a batch is read; None if Kafka does not answer."""
        try:
            return self.topics.take_epochs(positions) if self.topics is not None else None
        except ServiceDown:
            return None

    def before(self, connection: Connection, compiled: CompiledView, begin: Positions, taken: Epochs | None) -> Epochs:
        """Require that the log still has all records that the view has read, and return the batch's leader epochs.

        Raises:
            LogCut: the log has lost some of these records.
        """
        if self.topics is None:
            return {}
        if taken is None:
            raise ServiceDown("Kafka did not answer about the leaders of the batch's partitions; see `truelog status`.")
        reader = ReaderState(compiled.name, begin, merge.leader_epochs(connection, compiled))
        log_cuts.require_intact(self.topics.settings, connection, reader, taken)
        return taken

    def after(self, taken: Epochs, read: Positions) -> None:
        """Require, after records up to `read` were read, that these are still the topics, under the same leaders."""
        self.require_unchanged(read)
        if self.topics is not None:
            self.topics.require_same_leaders(taken, read)

    def is_proved(self, taken: Epochs | None, read: Positions) -> bool:
        """Whether these are still the topics, under the same leaders. If not, each view finds out about its own topics.

        Records that were read before this moment are proved for every view that applies this batch.
        """
        try:
            if taken is not None:
                self.after(taken, read)
        except TruelogError:
            return False
        return taken is not None

    def require_unchanged(self, read: Positions) -> None:
        """Require, after records up to `read` were read, that none of their topics was created again meanwhile."""
        if self.topics is not None:
            self.topics.require_unchanged(read)
