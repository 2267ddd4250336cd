"""A subscriber of the view `matches` gets each match, its correction and its end, and nothing of other entities."""

import json
from typing import Any

from tests.library.notifications.found_rows import found_rows, match
from tests.library.services.api.streaming import Served, Stream
from truelog.storage.database import Connection


def of_stream(told: Stream) -> dict[str, tuple[str, Any]]:
    """The outcome of each match and its shown columns, as the subscriber knows them."""
    rows = [json.loads(row) for row in told.rows.values()]
    return {row["match_id"]: (row["outcome"], json.loads(row["shown"])) for row in rows}


def test_a_subscriber_of_an_entity_gets_its_matches(api: Served, connection: Connection) -> None:
    shown = {"amount": 12.5}
    with found_rows(connection, "matches") as view:
        view.change(match("m1"))
        with api.following("matches", where="entity_id=ann") as told:
            assert told.next() is not None
            assert of_stream(told) == {"m1": ("found", shown)}
            view.change(match("m2", entity_id="bob"))
            view.change(match("m3", outcome="late"))
            told.next()
            assert of_stream(told) == {"m1": ("found", shown), "m3": ("late", shown)}
            view.change(match("m1", outcome="retracted"), removed=(match("m3"),))
            told.next()
            assert of_stream(told) == {"m1": ("retracted", shown)}
