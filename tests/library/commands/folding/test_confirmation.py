"""The reason for states that are not confirmed, which a client gets with status 503."""

from collections.abc import Iterator

import pytest

from tests.library.commands.decisions import COMMANDS
from tests.library.commands.folding.parcels import send
from tests.library.commands.made_fold import make_fold
from truelog.commands.claims import CLAIM
from truelog.commands.folding.confirmation import Confirmation
from truelog.control.command_states import withdraw
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.storage.database import Connection, connect
from truelog.support.settings import KafkaUser, Settings

CODE = COMMANDS.codes[CLAIM]


@pytest.fixture
def database(platform: Settings) -> Iterator[Connection]:
    with connect(platform, autocommit=True) as connection:
        yield connection


def make(connection: Connection, at: Positions, code: str = CODE) -> None:
    """Make the states of claims again, up to these positions."""
    withdraw(connection, [CLAIM])
    make_fold(connection, CLAIM, code, at.ids[CLAIM], at.offsets[CLAIM])


def reason(confirmation: Confirmation) -> str | None:
    confirmation.look()
    return confirmation.missing([CLAIM]).get(CLAIM)


def test_a_reason_names_its_cause(platform: Settings, database: Connection) -> None:
    confirmation, before = Confirmation(platform, COMMANDS), topics.end_offsets(platform, [CLAIM])
    send(platform, CLAIM, "a", KafkaUser.RELAY, name="a", verb="claimed", holder="ann")
    make(database, topics.end_offsets(platform, [CLAIM]), code="other")
    assert "were made by other code. Restart" in str(reason(confirmation))
    make(database, before)
    assert "has not been read to the end" in str(reason(confirmation))
    withdraw(database, [CLAIM])
    assert "are being made again" in str(reason(confirmation))
    make(database, topics.end_offsets(platform, [CLAIM]))
    assert reason(confirmation) is None


def test_an_end_counts_only_for_the_states_that_were_there_before(platform: Settings, database: Connection) -> None:
    """The former states may have contained accepted events beyond an earlier end. These are no longer pending."""
    confirmation, before = Confirmation(platform, COMMANDS), topics.end_offsets(platform, [CLAIM])
    make(database, before)
    assert reason(confirmation) is None
    send(platform, CLAIM, "a", KafkaUser.RELAY, name="a", verb="claimed", holder="ann")
    make(database, before)
    confirmation.withdraw([CLAIM])
    assert "has not been read to the end" in str(reason(confirmation))
