"""View states in the database: states that release 0.1 wrote, and the way back to that release."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from truelog.control import view_status
from truelog.storage import database
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

SQL = Path(database.__file__).parent / "sql"
OLD_TABLE = """
    DROP TRIGGER rename_state ON truelog.standing;
    ALTER TABLE truelog.standing DROP CONSTRAINT standing_state_check;
    UPDATE truelog.standing SET state = CASE state WHEN 'STALLED' THEN 'STANDING' ELSE 'FOLLOWING' END;
    ALTER TABLE truelog.standing ADD CONSTRAINT standing_state_check CHECK (state IN ('FOLLOWING', 'STANDING'));
"""
OLD_INSERT = "INSERT INTO truelog.standing (view, application, version, state, reason) VALUES (%s, 'old', 1, %s, %s)"


@pytest.fixture
def rolled_back(postgresql: Settings) -> Iterator[Connection]:
    """A connection whose changes are rolled back after the test."""
    with connect(postgresql) as connection, connection.transaction(force_rollback=True):
        connection.execute("TRUNCATE truelog.standing")
        yield connection


def states(connection: Connection) -> dict[str, str]:
    rows = connection.execute("SELECT view, state FROM truelog.standing ORDER BY view").fetchall()
    return {str(view): str(state) for view, state in rows}


def migrate(connection: Connection) -> None:
    for file in ("schema.sql", "layer.sql"):
        connection.execute((SQL / file).read_bytes())


def way_back() -> bytes:
    """The part of the script that restores states; the whole script would commit."""
    _, begin, rest = (SQL / "back_to_0_1.sql").read_bytes().partition(b"-- View states")
    assert begin
    return b"--" + rest.partition(b"\n\n")[0]


def test_migration_renames_the_states_of_0_1(rolled_back: Connection) -> None:
    rolled_back.execute(OLD_TABLE)
    rolled_back.execute(OLD_INSERT, ("good", "FOLLOWING", ""))
    rolled_back.execute(OLD_INSERT, ("bad", "STANDING", "it fails"))
    for _ in range(2):
        migrate(rolled_back)
        assert states(rolled_back) == {"good": "UP_TO_DATE", "bad": "STALLED"}


def test_an_application_of_0_1_may_still_write_its_states(rolled_back: Connection) -> None:
    rolled_back.execute(OLD_INSERT, ("good", "FOLLOWING", ""))
    rolled_back.execute(OLD_INSERT, ("bad", "FOLLOWING", ""))
    rolled_back.execute("UPDATE truelog.standing SET state = 'STANDING', reason = 'it fails' WHERE view = 'bad'")
    assert states(rolled_back) == {"good": "UP_TO_DATE", "bad": "STALLED"}
    view_status.record_state(rolled_back, "old", "bad", 1)
    assert states(rolled_back)["bad"] == "UP_TO_DATE"


def test_the_way_back_restores_the_states_of_0_1(rolled_back: Connection) -> None:
    view_status.record_state(rolled_back, "new", "good", 1)
    view_status.record_state(rolled_back, "new", "bad", 1, "it fails")
    for _ in range(2):
        rolled_back.execute(way_back())
        assert states(rolled_back) == {"good": "FOLLOWING", "bad": "STANDING"}
    rolled_back.execute(OLD_INSERT, ("another", "STANDING", "it fails"))
    assert states(rolled_back)["another"] == "STANDING"
    migrate(rolled_back)
    assert states(rolled_back) == {"good": "UP_TO_DATE", "bad": "STALLED", "another": "STALLED"}
