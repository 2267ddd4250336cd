"""What every answer says about its rows: view, version, layer, positions, log's clock, time and age."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from truelog.log.positions import Positions
from truelog.services.api.rows.waiting import positions_of
from truelog.support import timestamps

HEADER = "Truelog-Answer"  # the same in a header, for answers without a body
_LONGEST_HEADER = 2_048  # bytes; proxies such as nginx refuse headers of more than four kilobytes in all


@dataclass(frozen=True)
class Source:
    """What the rows that readers see were made of. Rows of equal states are equal."""

    view: str
    version: int
    layer: str
    clock: datetime | None
    offsets: str
    ids: str
    state: str

    @property
    def positions(self) -> Positions:
        return positions_of(self.offsets, self.ids)


@dataclass(frozen=True)
class Freshness:
    """The time before which every record in the log has been counted, and what is wrong with the view, if anything."""

    version: int
    layer: str
    as_of: datetime | None
    reason: str


def head(source: Source, fresh: Freshness) -> dict[str, Any]:
    """The members that every answer begins with."""
    return {
        "view": source.view,
        "version": source.version,
        "layer": source.layer,
        "positions": msgspec.Raw(source.offsets.encode()),
        "clock": source.clock and timestamps.to_text(source.clock),
        "as_of": fresh.as_of and timestamps.to_text(fresh.as_of),
        "age": fresh.as_of and round(max(0.0, (datetime.now(UTC) - fresh.as_of).total_seconds()), 3),
        "reason": fresh.reason,
    }


def body(of: Mapping[str, Any], rows: Sequence[str], more: Mapping[str, Any]) -> bytes:
    """The answer as JSON. The rows are as PostgreSQL writes them, so that numbers keep all their digits."""
    begin, end = msgspec.json.encode(of), msgspec.json.encode(more)
    return b'%b,"rows":[%b],%b' % (begin[:-1], ",".join(rows).encode(), end[1:])


def header(of: Mapping[str, Any]) -> str:
    """The head for a header, whose characters are ASCII. A reason is left out, because it may have others.

    The positions of many partitions are left out too, because they would make the header too long.
    """
    whole = _without(of, "reason")
    return (whole if len(whole) <= _LONGEST_HEADER else _without(of, "reason", "positions")).decode()


def _without(of: Mapping[str, Any], *names: str) -> bytes:
    return msgspec.json.encode({name: value for name, value in of.items() if name not in names})


def etag(version: int, rows: Sequence[str]) -> str:
    """A weak entity tag: it changes with the rows, but not with the positions."""
    digest = hashlib.sha256("\n".join([str(version), *rows]).encode()).hexdigest()[:32]
    return f'W/"{digest}"'


def is_known(tag: str, if_none_match: str) -> bool:
    """Whether the client has the entity already, by the header `If-None-Match`."""
    known = [each.strip() for each in if_none_match.split(",")]
    return "*" in known or tag.removeprefix("W/") in [each.removeprefix("W/") for each in known]
