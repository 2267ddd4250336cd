"""Rate limits: whether an address may make another request, as a pure function of its requests and the time.

`request_rates` counts requests in panes of ten seconds. A window ends at the time of the question. The rules, in this
order:

1. If a block of the address is in force, the answer is no.
2. If the window contains as many requests as the policy allows, or more, the answer is no. The policy is the address's
   own, or else the policy for `all` addresses, or else `DEFAULT`.
3. Otherwise, the answer is yes.

A pane at the edge of the window counts as a whole, so the count is never too small because of the panes. A pane that
begins after the time of the question does not count.

The answer is advisory. It counts the requests that have reached the view, which is some seconds behind the requests.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

PANE = timedelta(seconds=10)
ALL = "all"  # the address of the policy for every address without its own
POLICY, BLOCK = "policy", "block"


@dataclass(frozen=True)
class Policy:
    """An address may make `max_requests` requests in a window. The window consists of whole panes."""

    max_requests: int
    window_seconds: int

    @property
    def window(self) -> timedelta:
        return timedelta(seconds=self.window_seconds)


DEFAULT = Policy(100, 3_600)


@dataclass(frozen=True)
class Block:
    """A block, in force until it ends by itself or, if `until` is None, until a person ends it."""

    until: datetime | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Requests:
    """The requests in the pane that begins at `pane`."""

    pane: datetime
    number: int


@dataclass(frozen=True)
class Usage:
    """What decides about an address: its policy, its block if there is one, and its requests, oldest pane first."""

    policy: Policy = DEFAULT
    block: Block | None = None
    requests: tuple[Requests, ...] = ()


@dataclass(frozen=True)
class Decision:
    """Whether an address may make another request.

    `resets_at` is the first time from the question on at which the answer is yes, if there is no further request, and
    None if only a person can change the answer.
    """

    allowed: bool
    why: str
    count: int
    policy: Policy
    resets_at: datetime | None


def decide(usage: Usage, at: datetime) -> Decision:
    """Apply the rules to the usage of an address."""
    policy, block = usage.policy, usage.block
    counted = [each for each in usage.requests if each.pane <= at < _leaves_at(each, policy)]
    count, resets_at = sum(each.number for each in counted), _resets_at(counted, policy, at)
    if block is not None and (block.until is None or at < block.until):  # 1
        return Decision(False, BLOCK, count, policy, block.until and max(block.until, resets_at))
    return Decision(count < policy.max_requests, POLICY, count, policy, resets_at)  # 2, 3


def _leaves_at(requests: Requests, policy: Policy) -> datetime:
    """When the last request that the pane may contain leaves the window."""
    return requests.pane + PANE + policy.window


def _resets_at(counted: Sequence[Requests], policy: Policy, at: datetime) -> datetime:
    """When the newest pane leaves from which on there are as many requests as the policy allows."""
    number = 0
    for each in reversed(counted):
        number += each.number
        if number >= policy.max_requests:
            return _leaves_at(each, policy)
    return at


def canonical_address(text: str) -> str:
    """The canonical form of an IP address. An IPv4 address that is written as an IPv6 address is the IPv4 address.

    Raises:
        ValueError: the text is not an IP address.
    """
    address = ipaddress.ip_address(text)
    return str(getattr(address, "ipv4_mapped", None) or address)
