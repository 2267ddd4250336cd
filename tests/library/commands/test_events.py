"""What folds read of accepted events that are not in the log yet."""

from datetime import UTC, datetime, timedelta

from tests.library.commands.decisions import TYPES
from truelog.commands.declaration import NewEvent
from truelog.commands.events import payloads, to_log


def test_an_accepted_event_is_read_whatever_the_clock_of_the_reading_process_says() -> None:
    payload = {"cart_id": "c", "visitor_id": "v", "verb": "added", "product": "lamp", "quantity": 1}
    made = to_log(TYPES, NewEvent("cart_event", payload), datetime.now(UTC) + timedelta(minutes=10))
    assert payloads(TYPES, [made]) == [payload]
