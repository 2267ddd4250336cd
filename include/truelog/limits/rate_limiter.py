"""The collector's rate limits: refuses requests of addresses that are blocked or over their policy.

The event loop only looks into memory. A background thread asks the database once a second about all addresses that sent
a request since the last time, so an address's first requests always pass. A refusal is kept until it ends, and the next
request of its address has it checked again.

The limits fail open. If the database does not answer, all requests pass, and the log says so once for each outage.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import psycopg

from truelog.limits import rate as rate_limit
from truelog.limits import rate_answer as rate_limit_answer
from truelog.limits.rate import BLOCK, Decision
from truelog.storage.kept_sessions import kept
from truelog.support.errors import RequestRefused, TruelogError
from truelog.support.settings import Settings

CHECK_SECONDS = 1.0  # between two questions to the database
MOST_ADDRESSES = 10_000  # in one question, and of refusals in memory
OPEN_SECONDS = 10.0  # without an answer, after which all requests pass
_QUERY_SECONDS = 5  # time limit of a query

log = logging.getLogger(__name__)

Ask = Callable[[Sequence[str]], Mapping[str, Decision]]


class RateLimiter:
    """The refused addresses, and the addresses to ask about."""

    def __init__(self, ask: Ask, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._ask, self._clock = ask, clock
        self._asked: set[str] = set()
        self._refusals: dict[str, Decision] = {}  # the newest last
        self._answered_at = -math.inf  # by the monotonic clock, because a machine's clock may jump
        self._unchecked = 0  # requests that have passed without a check in this outage
        self._is_down = False

    def require_allowed(self, peer: str | None) -> None:
        """Raise 429 if the address is refused. A peer without an IP address, such as a Unix socket, is not limited."""
        try:
            address = rate_limit.canonical_address(peer or "")
        except ValueError:
            return
        if len(self._asked) < MOST_ADDRESSES:
            self._asked.add(address)
        if time.monotonic() - self._answered_at > OPEN_SECONDS:
            self._unchecked += 1
            return
        refusal, now = self._refusals.get(address), self._clock()
        if refusal is not None and _is_in_force(refusal, now):
            raise _refused(address, refusal, now)

    def check(self) -> None:
        """Ask about the addresses of the latest requests."""
        asked, self._asked = self._asked, set()
        try:
            decisions = self._ask(list(asked))
        except (psycopg.Error, TruelogError) as error:
            self._open(error)
            return
        now = self._clock()
        kept = {address: each for address, each in self._refusals.items() if address not in decisions}
        refusals = [each for each in {**kept, **decisions}.items() if _is_in_force(each[1], now)]
        self._refusals = dict(refusals[-MOST_ADDRESSES:])
        self._answered_at = time.monotonic()
        if self._is_down:
            log.info("rate limits apply again; %d requests passed without a check", self._unchecked)
        self._is_down, self._unchecked = False, 0

    def _open(self, error: Exception) -> None:
        """Let all requests pass until the database answers again."""
        self._answered_at = -math.inf
        if not self._is_down:
            log.warning("rate limits do not apply: %s", error)
        self._is_down = True


class DecisionReader:
    """Reads decisions from the database."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, addresses: Sequence[str]) -> dict[str, Decision]:
        now = datetime.now(UTC)
        with kept(self._settings) as connection, connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = '{_QUERY_SECONDS}s'".encode())
            usages = rate_limit_answer.usages(connection, addresses, now)
        return {address: rate_limit.decide(usage, now) for address, usage in usages.items()}


def _is_in_force(decision: Decision, now: datetime) -> bool:
    return not decision.allowed and (decision.resets_at is None or now < decision.resets_at)


def _refused(address: str, refusal: Decision, now: datetime) -> RequestRefused:
    policy = refusal.policy
    if refusal.why == BLOCK:
        reason = f"{address} is blocked"
    else:
        reason = f"{address} may make {policy.max_requests} requests in {policy.window_seconds} s"
    seconds = math.ceil((refusal.resets_at - now).total_seconds()) if refusal.resets_at else None
    return RequestRefused(429, f"{reason}; nothing was stored", retry_after=seconds)
