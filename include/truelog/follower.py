"""Follower: one view within a stream application, on a connection and a thread of its own.

A view that fails or is slow stands where it stands and holds nobody up; when it is free again it finds itself behind,
and reads from the log what it lacks.
"""

import logging
from concurrent.futures import Future
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from truelog import merge, records
from truelog.advance import Advancer, Slice
from truelog.compiled import Compiled
from truelog.database import Connection, connect
from truelog.errors import Fenced
from truelog.positions import Positions

log = logging.getLogger("truelog.stream")


@dataclass
class Follower:
    """What a stream knows of one of its views; `stands` is None when it must be asked from the database."""

    spark: SparkSession
    advancer: Advancer
    compiled: Compiled
    connection: Connection | None = None
    stands: Positions | None = None
    task: "Future[None] | None" = field(default=None, repr=False)

    @property
    def idle(self) -> bool:
        return self.task is None or self.task.done()

    def follow(self, piece: Slice) -> None:
        """Take the view to the end of the batch, or leave it where it stands and say why.

        Raises:
            Fenced: this process must end; a successor runs.
        """
        try:
            self._follow(piece)
        except Fenced:
            raise
        except Exception:
            log.exception("%s stands still; the next batch tries again", self.compiled.name)
            self._forget()

    def positions(self) -> Positions:
        """Where the view stands, by the database where this process does not know."""
        if self.connection is None:
            self.connection = connect(self.advancer.settings, autocommit=True)
        if self.stands is None:
            self.stands = merge.positions(self.connection, self.compiled)
        return self.stands

    def _follow(self, piece: Slice) -> None:
        topics = self.compiled.view.topics
        end = piece.end.only(topics)
        stands = self.positions()
        while not stands.covers(end):
            here = piece if stands.covers(piece.begin.only(topics)) else self._missed(stands, end)
            assert self.connection is not None  # noqa: S101
            stands = self.advancer.advance(self.connection, self.compiled, here, stands)
            self.stands = stands

    def _missed(self, stands: Positions, end: Positions) -> Slice:
        """What lies between the view and the batch, from the log itself, in portions."""
        settings, types = self.advancer.settings, self.advancer.types
        until = stands.portion_to(end, settings.max_offsets_per_trigger)
        raw = records.between(self.spark, settings, stands.earliest(until), until)
        log.info("%s catches up from %s to %s", self.compiled.name, stands.as_json(), until.as_json())
        mine = {topic: types[topic] for topic in until.offsets}
        return Slice(records.events(records.decoded(raw, mine, settings), mine), stands, until)

    def _forget(self) -> None:
        """After a failure only the database knows where the view stands, and the connection may be broken."""
        if self.connection is not None:
            self.connection.close()
        self.connection = self.stands = None
