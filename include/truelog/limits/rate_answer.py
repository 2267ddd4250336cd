"""The answer about an address's rate limit, with the positions of the views that it was answered from and its age.

All queries look rows up by index: `request_rates` by address and pane, and `rate_limits` by address.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from psycopg.errors import UndefinedTable

from truelog.limits import rate as rate_limit
from truelog.limits.rate import ALL, DEFAULT, PANE, Block, Decision, Policy, Requests, Usage
from truelog.log.positions import Positions
from truelog.serving import status as serving_status
from truelog.storage.database import Connection
from truelog.support.errors import NotSetUp

VIEWS = ("rate_limits", "request_rates")
NOT_MADE = f"{' and '.join(VIEWS)} do not both exist yet: a stream creates them when it starts."

# Functions of the owner, because the collector's role may read no view.
_LIMITS = """
SELECT address, max_requests, window_seconds, blocked, blocked_until, reason FROM truelog.limits_of(%s::text[])
"""
_REQUESTS = """
SELECT ip, pane, requests FROM truelog.requests_of(%(addresses)s::text[], %(since)s::timestamptz[], %(at)s)
"""
_POSITIONS = """
SELECT view, topic, partition, next_offset, topic_id FROM truelog.served_position
JOIN truelog.deployed USING (view, version) WHERE view = ANY(%s) ORDER BY view
"""


@dataclass(frozen=True)
class RateLimitAnswer:
    """The decision about an address, and what it was answered from. It is advisory.

    `age` is the age of the older of the two views in seconds. It is None until the lag poller has seen both.
    """

    address: str
    at: datetime
    decision: Decision
    reason: str | None
    positions: Mapping[str, Positions]
    age: float | None

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return {
            "address": self.address,
            "at": self.at,
            "allowed": self.decision.allowed,
            "why": self.decision.why,
            "reason": self.reason,
            "count": self.decision.count,
            "limit": self.decision.policy.max_requests,
            "window_seconds": self.decision.policy.window_seconds,
            "resets_at": self.decision.resets_at,
            "positions": {view: each.plain() for view, each in self.positions.items()},
            "age": self.age,
            "advisory": True,
        }


def answer(connection: Connection, address: str, at: datetime) -> RateLimitAnswer:
    """The answer about one address, within the caller's read-only snapshot.

    Raises:
        NotSetUp: a view does not exist yet.
    """
    usage = usages(connection, [address], at)[address]
    rows = connection.execute(_POSITIONS, (list(VIEWS),)).fetchall()
    positions = {view: Positions.of_rows(row[1:] for row in group) for view, group in groupby(rows, lambda row: row[0])}
    status = serving_status.serving_statuses(connection)
    ages = [status[view].age for view in VIEWS]
    age = None if None in ages else max(each for each in ages if each is not None)
    reason = usage.block.reason if usage.block else None
    return RateLimitAnswer(address, at, rate_limit.decide(usage, at), reason, positions, age)


def usages(connection: Connection, addresses: Iterable[str], at: datetime) -> dict[str, Usage]:
    """The usage of each address, for a question at `at`. Two queries read them all.

    Raises:
        NotSetUp: a view does not exist yet.
    """
    asked = list(addresses)
    try:
        rows = connection.execute(_LIMITS, ([*asked, ALL],)).fetchall()
        policies = {address: Policy(*policy) for address, *policy, _, _, _ in rows if policy[0] is not None}
        blocks = {address: Block(*block) for address, _, _, is_blocked, *block in rows if is_blocked}
        policy_of = {address: policies.get(address, policies.get(ALL, DEFAULT)) for address in asked}
        since = [at - policy_of[address].window - PANE for address in asked]
        found = connection.execute(_REQUESTS, {"addresses": asked, "since": since, "at": at}).fetchall()
    except UndefinedTable as missing:
        raise NotSetUp(NOT_MADE) from missing
    requests: dict[str, list[Requests]] = {address: [] for address in asked}
    for address, pane, number in found:
        requests[address].append(Requests(pane, int(number)))
    return {address: Usage(policy_of[address], blocks.get(address), tuple(requests[address])) for address in asked}
