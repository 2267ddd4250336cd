"""The collector's rate limiter: what it keeps in memory, what it asks for, and that it fails open."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from truelog.limits import rate_limiter
from truelog.limits.rate import BLOCK, DEFAULT, POLICY, Decision
from truelog.limits.rate_limiter import RateLimiter
from truelog.support.errors import NotSetUp, RequestRefused

START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
ADDRESS, OTHER = "192.0.2.1", "192.0.2.2"
ALLOWED = Decision(True, POLICY, 0, DEFAULT, START)


def over(seconds: float) -> Decision:
    return Decision(False, POLICY, 120, DEFAULT, START + timedelta(seconds=seconds))


@dataclass
class World:
    """The decisions that the database would return, the questions it got, and the time."""

    decisions: dict[str, Decision] = field(default_factory=dict)
    questions: list[set[str]] = field(default_factory=list)
    now: datetime = START
    error: Exception | None = None

    def ask(self, addresses: Sequence[str]) -> dict[str, Decision]:
        if self.error is not None:
            raise self.error
        self.questions.append(set(addresses))
        return {each: self.decisions.get(each, ALLOWED) for each in addresses}

    def limiter(self) -> RateLimiter:
        made = RateLimiter(self.ask, lambda: self.now)
        made.check()
        return made


def refusal(limiter: RateLimiter, peer: str = ADDRESS) -> RequestRefused:
    with pytest.raises(RequestRefused) as refused:
        limiter.require_allowed(peer)
    assert refused.value.status == 429
    return refused.value


def test_an_address_passes_until_it_was_asked_about() -> None:
    world = World({ADDRESS: over(90.2)})
    limiter = world.limiter()
    limiter.require_allowed(ADDRESS)
    limiter.require_allowed(OTHER)
    limiter.check()
    found = refusal(limiter)
    assert (found.retry_after, "100 requests in 3600 s" in str(found)) == (91, True)
    limiter.require_allowed(OTHER)
    assert world.questions == [set(), {ADDRESS, OTHER}]


def test_many_requests_make_one_question() -> None:
    world = World()
    limiter = world.limiter()
    for _ in range(1_000):
        limiter.require_allowed(ADDRESS)
    limiter.check()
    limiter.check()
    assert world.questions == [set(), {ADDRESS}, set()]


def test_a_refusal_is_kept_until_it_ends_although_the_address_is_quiet() -> None:
    world = World({ADDRESS: over(60)})
    limiter = world.limiter()
    limiter.require_allowed(ADDRESS)
    for _ in range(5):
        limiter.check()
    world.now = START + timedelta(seconds=59)
    assert refusal(limiter).retry_after == 1
    world.now = START + timedelta(seconds=60)
    limiter.require_allowed(ADDRESS)


def test_a_refused_address_is_asked_about_again() -> None:
    world = World({ADDRESS: over(3_000)})
    limiter = world.limiter()
    limiter.require_allowed(ADDRESS)
    limiter.check()
    world.decisions.clear()
    refusal(limiter)
    limiter.check()
    limiter.require_allowed(ADDRESS)


def test_a_block_without_an_end_names_no_time() -> None:
    world = World({ADDRESS: Decision(False, BLOCK, 0, DEFAULT, None)})
    limiter = world.limiter()
    limiter.require_allowed(ADDRESS)
    limiter.check()
    found = refusal(limiter)
    assert (found.retry_after, "is blocked" in str(found)) == (None, True)


def test_the_forms_of_an_address_are_one_address_and_other_peers_pass() -> None:
    world = World({ADDRESS: over(60)})
    limiter = world.limiter()
    limiter.require_allowed(f"::ffff:{ADDRESS}")
    for peer in (None, "", "unix", "unknown"):
        limiter.require_allowed(peer)
    limiter.check()
    assert world.questions[-1] == {ADDRESS}
    refusal(limiter, f"::FFFF:{ADDRESS}")


@pytest.mark.parametrize("error", [psycopg.OperationalError("gone"), NotSetUp("no views yet")])
def test_without_an_answer_everything_passes_and_the_log_says_so_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    world = World({ADDRESS: over(60)})
    limiter = world.limiter()
    limiter.require_allowed(ADDRESS)
    limiter.check()
    refusal(limiter)
    world.error = error
    with caplog.at_level(logging.INFO, rate_limiter.__name__):
        for _ in range(3):
            limiter.check()
            limiter.require_allowed(ADDRESS)
        world.error = None
        limiter.check()
    refusal(limiter)
    assert [record.getMessage() for record in caplog.records] == [
        f"rate limits do not apply: {error}",
        "rate limits apply again; 3 requests passed without a check",
    ]


def test_while_a_question_hangs_everything_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({ADDRESS: over(60)})
    limiter = world.limiter()
    limiter.require_allowed(ADDRESS)
    limiter.check()
    monkeypatch.setattr(rate_limiter, "OPEN_SECONDS", -1)
    limiter.require_allowed(ADDRESS)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "MOST_ADDRESSES", 3)
    addresses = [f"192.0.2.{n}" for n in range(10)]
    world = World(dict.fromkeys(addresses, over(60)))
    limiter = world.limiter()
    for group in (addresses, addresses[5:7]):
        for each in group:
            limiter.require_allowed(each)
        limiter.check()
    assert world.questions == [set(), set(addresses[:3]), set(addresses[5:7])]
    for each in addresses[5:7]:
        refusal(limiter, each)
    passed = [each for each in addresses if each not in limiter._refusals]
    assert len(passed) == 7
