"""Commands of tests, and their decisions in a database without the services around it."""

import itertools
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.library.commands.made_fold import make_fold
from truelog.commands import catalogue
from truelog.commands.catalogue import Catalogue
from truelog.commands.claims import CLAIM
from truelog.commands.command_log import Generations, Stored, decide_all
from truelog.commands.decider import Decider
from truelog.commands.decision import ACCEPTED
from truelog.commands.feed import CommandFeed
from truelog.commands.folding.fold_positions import Reading, statuses
from truelog.commands.folding.fold_reader import Portion, fold_portion
from truelog.commands.folding.log_record import LogRecord
from truelog.commands.request import CommandRequest, Sender, parse
from truelog.schema.loading.events import load_events
from truelog.storage.database import Connection

TYPES = load_events()
COMMANDS = catalogue.load()
REGISTER = '''
"""Begin a cart, and claim names for it."""
from commands.folds import cart
from truelog.commands.declaration import Command, Fields
class Register(Fields):
    cart_id: str
    names: str
def decide(state, command):
    beginning = cart.CartFields(cart_id=command.cart_id, visitor_id="v1")
    return cart.changed(beginning, "added", product="lamp", quantity=1)
def claims(command):
    return [f"username:{name}" for name in command.names.split()]
COMMAND = Command(Register, cart.FOLD, cart.cart_id, decide, claims)
'''
FOLDED = ("cart_event", CLAIM)
PARTITION = 0


def request(
    name: str, key: str | None = None, *, sender: str = "shop", commands: Catalogue = COMMANDS, **fields: Any
) -> CommandRequest:
    return parse(commands, name, json.dumps(fields).encode(), Sender(sender, key))


def claim(person: str, name: str = "ann", key: str | None = None) -> CommandRequest:
    return request("claim_username", key, username=name, person_id=person)


def release(person: str, name: str = "ann") -> CommandRequest:
    return request("release_username", username=name, person_id=person)


@dataclass
class Shop:
    """A command log whose topics are lists: each has one partition, as all events of a key have."""

    connection: Connection
    commands: Catalogue = COMMANDS
    topics: dict[str, list[bytes]] = field(default_factory=lambda: {name: [] for name in FOLDED})
    published: int = 0
    readings: dict[str, Reading] = field(default_factory=dict)

    def __post_init__(self) -> None:
        topic_id = uuid.uuid4().hex  # other topics than before, so that all states begin again
        for name in FOLDED:
            self.readings[name] = make_fold(self.connection, name, COMMANDS.codes[name], topic_id, {PARTITION: 0})
        self.published = self.feed.beginning().number - 1
        for row in self._unpublished():
            self.published = row.number

    @property
    def feed(self) -> CommandFeed:
        return CommandFeed(self.connection)

    @property
    def generations(self) -> Generations:
        return {event: each.generation for event, each in statuses(self.connection).items()}

    def decide(self, *requests: CommandRequest) -> list[Stored]:
        return decide_all(self.connection, self.commands, TYPES, self.generations, requests)

    def publish(self, most: int = 1_000) -> None:
        """Append accepted events to their topics, as the relay does."""
        for row in itertools.islice(self._unpublished(), most):
            assert row.value is not None
            self.topics[row.topic].append(row.value)
            self.published = row.number

    def _unpublished(self) -> Any:
        while rows := self.feed.next_rows(self.published + 1):
            yield from rows

    def bypass(self, topic: str, **payload: object) -> None:
        """Append an event that no command decided."""
        envelope = {"event_id": str(uuid.uuid4()), "occurred_at": "2026-11-25T10:00:00Z"}
        self.topics[topic].append(json.dumps(envelope | payload).encode())

    def read(self, most: int = 1_000) -> None:
        """Fold the next records, as the reader does."""
        for name in self.readings:
            self.read_topic(self.connection, name, most)

    def read_topic(self, connection: Connection, name: str, most: int = 1_000) -> bool:
        portion = self.portion(name, most)
        return fold_portion(connection, TYPES[name], COMMANDS.folds[name], self.readings[name], portion)

    def portion(self, name: str, most: int = 1_000) -> Portion:
        """The next records of a topic."""
        begin = self.readings[name].offsets[PARTITION]
        values = self.topics[name][begin : begin + most]
        records = [LogRecord(PARTITION, begin + n, datetime.now(UTC), value) for n, value in enumerate(values)]
        return Portion(name, records, {PARTITION: begin + len(records)})


def statuses_of(decided: Sequence[Stored]) -> list[int]:
    return [int(each.status) for each in decided]


def require_accepted(decider: Decider, command: CommandRequest) -> None:
    """Require that the command is decided and accepted. ServiceDown if its states are not confirmed yet."""
    decided = decider.submit(command)
    decider.work()
    assert decided.result(0).status == ACCEPTED
