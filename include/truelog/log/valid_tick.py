"""Which records of the `ticks` topic are ticks. Everything that reads ticks uses this one definition.

A record with these properties is a tick; any other record in the topic is ignored:

1. `ends` is a JSON object of the form `{topic: {partition: offset}}`, with legal names and numbers and no repeated name
2. its time is not before 1970, and not later than the time at which the broker appended it, within `FUTURE_LIMIT`

A tick that was appended before its own time is false. Without the second rule, one forged tick would expire rows.
"""

import json
import re
from datetime import timedelta
from typing import Any

from truelog.log.positions import Positions
from truelog.schema.event import FUTURE_LIMIT

TickRow = tuple[int, int, int, str]  # offset, time and broker time in microseconds since 1970, end offsets as JSON

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}")
_OFFSETS = range(2**63)
_LEAD = FUTURE_LIMIT // timedelta(microseconds=1)


def tick_ends(time: int, broker_time: int, ends: str) -> Positions | None:
    """The end offsets of a tick, or None if the record is not a tick. Both times are in microseconds since 1970."""
    if not 0 <= time <= broker_time + _LEAD:
        return None
    try:
        parsed = json.loads(ends, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict) or not all(_is_topic(*entry) for entry in parsed.items()):
        return None
    return Positions({topic: {int(p): offset for p, offset in by.items()} for topic, by in parsed.items()})


def _is_topic(name: str, partitions: object) -> bool:
    return (
        _TOPIC.fullmatch(name) is not None
        and isinstance(partitions, dict)
        and all(
            _PARTITION.fullmatch(p) and type(offset) is int and offset in _OFFSETS for p, offset in partitions.items()
        )
    )


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a repeated name")
    return found
