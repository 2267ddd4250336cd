"""Rate limits with real services: policies and blocks are events, the command line answers, and the collector obeys."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import runtime
from runtime import keeper
from tests.beds.world import World
from tests.chosen_views import copy_views
from tests.command import answer, truelog
from tests.deadline import until
from tests.scenes.applications import start
from tests.scenes.collector_client import Client, Response, another, page_view
from truelog.limits import rate_answer as rate_limit_answer
from truelog.log import topics
from truelog.support.errors import ServiceDown

pytestmark = [pytest.mark.own_servers, pytest.mark.nightly]

PROXY = "127.0.0.1"
SECONDS = 60  # until a decision applies


@pytest.fixture(scope="module")
def client(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a collector with rate limits, which trusts this machine as a proxy. A stream maintains both views."""
    folder = copy_views(tmp_path_factory.mktemp("limits"), *rate_limit_answer.VIEWS)
    stream = start(world.settings, "stream.py", TRUELOG_VIEWS_FOLDER=str(folder))
    stream.wait(lambda: all(has_relation(world, each) for each in rate_limit_answer.VIEWS), SECONDS, "both views")
    stream.kept = True
    with another(world.settings, collector_rate_limit=True, collector_trusted_proxies=PROXY) as (settings, _):
        yield Client(settings, settings.producer_key.get_secret_value())
    assert stream.end() == 0


def has_relation(world: World, view: str) -> bool:
    return world.ask("SELECT to_regclass(%s) IS NOT NULL", f"views.{view}") == [(True,)]


def require_status(client: Client, address: str, status: int) -> Response:
    response = client.post(page_view(), X_Forwarded_For=address)
    if response.status != status:
        raise ServiceDown(str(response))
    return response


def wait_for_status(client: Client, address: str, status: int) -> Response:
    """The first response with this status. The requests until then do not count as page views of the address."""
    found: list[Response] = []
    until(lambda: found.append(require_status(client, address, status)), SECONDS, f"{status} for {address}")
    return found[-1]


def check(address: str, *words: str) -> tuple[int, dict[str, object]]:
    ended = truelog("limit", "check", address, *words, "--json")
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def wait_for_check(address: str, **expected: object) -> dict[str, object]:
    """The first answer of the command with these values."""
    answers: list[dict[str, object]] = []

    def matches() -> None:
        code, found = check(address)
        if {name: found[name] for name in expected} != expected or code != (0 if found["allowed"] else 1):
            raise ServiceDown(f"{code}: {found}")
        answers.append(found)

    until(matches, SECONDS, f"{address} to be {expected}")
    return answers[-1]


def limit(address: str, requests: int) -> None:
    sent = answer("limit", "set", address, "--requests", str(requests), "--window", "1h")
    assert (sent["verb"], sent["max_requests"], sent["window_seconds"]) == ("set", requests, 3600)


def test_an_address_over_its_limit_is_refused_until_the_limit_is_raised(client: Client) -> None:
    address = "203.0.113.1"
    limit(address, 3)
    wait_for_check(address, allowed=True, limit=3)
    for _ in range(3):
        assert client.post(page_view(ip=address), X_Forwarded_For=address).status == 200
    found = wait_for_check(address, allowed=False)
    assert (found["why"], found["count"], found["limit"], found["window_seconds"]) == ("policy", 3, 3, 3600)
    assert "page_view" in found["positions"]["request_rates"]  # type: ignore[index]
    asked, refused, answered = datetime.now(UTC), wait_for_status(client, address, 429), datetime.now(UTC)
    resets_at = datetime.fromisoformat(str(found["resets_at"])).timestamp()
    retry_after = int(refused.headers["retry-after"])
    assert resets_at - answered.timestamp() <= retry_after < resets_at - asked.timestamp() + 1
    before = topics.end_offsets(client.settings, ["page_view"])
    assert require_status(client, address, 429).body.keys() == {"error"}
    assert topics.end_offsets(client.settings, ["page_view"]) == before, "a refused request stores nothing"
    assert check(address, "--at", "2h")[1]["count"] == 0
    limit(address, 1_000)
    wait_for_status(client, address, 200)


def test_a_blocked_address_is_refused_until_it_is_unblocked(client: Client) -> None:
    address = "203.0.113.2"
    answer("limit", "block", address, "--reason", "scraping")
    assert wait_for_check(address, why="block")["reason"] == "scraping"
    assert "retry-after" not in wait_for_status(client, address, 429).headers
    answer("limit", "unblock", address)
    wait_for_status(client, address, 200)


def test_only_a_trusted_proxy_names_the_sender(client: Client) -> None:
    """The proxy appends the last entry. A sender may write all others."""
    address, other = "203.0.113.3", "203.0.113.4"
    answer("limit", "block", address, "--for", "1h")
    assert int(wait_for_status(client, address, 429).headers["retry-after"]) <= 3600
    require_status(client, f"{other}, {address}", 429)
    require_status(client, f"{other}, {address}, {PROXY}", 429)
    require_status(client, f"{address}, {other}", 200)
    with another(client.settings, collector_rate_limit=True, collector_trusted_proxies="192.0.2.0/24") as (settings, _):
        direct = Client(settings, client.key)
        require_status(direct, address, 200)
        answer("limit", "block", PROXY)
        wait_for_status(direct, other, 429)
        answer("limit", "unblock", PROXY)
        wait_for_status(direct, address, 200)


def test_without_the_database_everything_passes(world: World, client: Client) -> None:
    address = "203.0.113.5"
    answer("limit", "block", address)
    wait_for_status(client, address, 429)
    keeper.stop(world.settings, "postgresql")
    try:
        wait_for_status(client, address, 200)
    finally:
        runtime.up(world.settings, ("postgresql",), tethered=True)
    wait_for_status(client, address, 429)


@pytest.mark.parametrize(
    "words",
    [
        ("check", "localhost"),
        ("check", "203.0.113.6", "--at", "soon"),
        ("check", "203.0.113.6", "--at", "0001-01-01T00:00:00Z"),
        ("set", "203.0.113.6", "--requests", "0", "--window", "1h"),
        ("set", "203.0.113.6", "--requests", "5", "--window", "15s"),
        ("set", "all", "--requests", "5", "--window", "2d"),
        ("block", "all"),
        ("block", "203.0.113.6", "--for", "999999w"),
        ("unblock", "1.2.3"),
    ],
)
def test_bad_use_changes_nothing(client: Client, words: tuple[str, ...]) -> None:
    before = topics.end_offsets(client.settings, ["rate_policy", "block"])
    ended = truelog("limit", *words)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert topics.end_offsets(client.settings, ["rate_policy", "block"]) == before
