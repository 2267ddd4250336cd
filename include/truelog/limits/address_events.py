"""Limits the events that each address may send with the keys of browsers, which everybody can read.

Addresses of IPv6 count by their /64 network, because one sender has a whole network. Requests without an IP address,
such as those of a Unix socket, count together.
"""

import ipaddress
import time
from collections.abc import Callable

from truelog.limits.budget import Budgets
from truelog.support.errors import RequestRefused

_BURST_SECONDS = 50  # a browser that was offline sends its events at once
_REQUEST_EVENTS = 500  # of the tracker; a limit that no full request fits would refuse it for ever


class AddressEventLimit:
    """Allows each address `rate` events per second in the long run."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._budgets = rate, Budgets(rate, max(rate * _BURST_SECONDS, _REQUEST_EVENTS), clock)

    def take(self, address: str | None, events: int) -> None:
        """Raise 429 if the address has sent too many events. Then nothing counts."""
        if seconds := self._budgets.take(_sender(address), events):
            reason = f"an address may send {self._rate:g} events per second from browsers; nothing was stored"
            raise RequestRefused(429, reason, retry_after=seconds)


def _sender(address: str | None) -> str:
    try:
        found = ipaddress.ip_address(address or "")
    except ValueError:
        return ""
    if found.version == 6 and not found.ipv4_mapped:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
