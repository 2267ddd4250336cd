"""A consumer of an output topic that joins at any moment, and follows the topic until it has the table."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from decimal import Decimal

from confluent_kafka import Message

from tests.deadline import deadline
from tests.library.relay.published import Published
from tests.meanwhile import meanwhile
from truelog.client.errors import Unavailable
from truelog.client.output_table import OutputTable
from truelog.log.kafka_reader import headers_of
from truelog.support.settings import KafkaUser


class Numbered(OutputTable):
    """A table that notes the number of each record since its beginning."""

    def _begin(self) -> None:
        self.numbers: list[int] = []
        super()._begin()

    def _keep(self, message: Message | None) -> bool:
        before = self._next
        kept = super()._keep(message)
        if message is not None and message.error() is None and self._next > before:
            self.numbers.append(int(dict(headers_of(message))["truelog.number"] or b""))
        return kept


class Joining:
    """A consumer in a thread. Whatever does not answer, it tries again."""

    def __init__(self, view: Published) -> None:
        self.view = view
        self.table: Numbered | None = None

    def work(self, ended: threading.Event) -> None:
        """Join, and follow the topic until the test has published everything. Then read up to the end."""
        kafka = self.view.settings.kafka(KafkaUser.READER)
        while not ended.is_set():
            with suppress(Unavailable):
                self.table = self.table or Numbered(self.view.topic, kafka, deadline(30))
                self.table.follow(0.2)
        assert self.table is not None, "the consumer has never joined"
        with closing(self.table):
            self.table.follow()

    def require_all(self) -> None:
        """It has the rows of the view, and got each row of the outbox once and in order."""
        assert self.table is not None
        rows = {key: json.loads(row, parse_float=Decimal) for key, row in self.view.rows().items()}
        assert self.table.rows == rows
        assert self.table.numbers == [*range(1, self.view.number() + 1)]


@contextmanager
def joining(view: Published) -> Iterator[Joining]:
    """A consumer that joins now, and has read everything that is published when the block ends."""
    made = Joining(view)
    with meanwhile(made.work):
        yield made
