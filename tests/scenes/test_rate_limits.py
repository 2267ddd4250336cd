"""Rate limits with real services: policies and blocks are events, the command line answers, and the collector obeys."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import runtime
from runtime import keeper
from tests.scenes.applications import Application, start
from tests.scenes.collector_client import Client, Response, another, page_view
from tests.scenes.command_line import answer, truelog
from tests.scenes.conftest import World
from truelog.log import topics
from truelog.serving import rate_limit_answer
from truelog.support.errors import ServiceDown
from truelog.support.wait import until
from truelog.views.catalogue import VIEWS

ADDRESS, OTHER, PROXY = "203.0.113.7", "203.0.113.8", "127.0.0.1"
SECONDS = 60  # until a decision applies


@pytest.fixture
def stream(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    """A stream into the two views, with a database that is up again afterwards."""
    for name in rate_limit_answer.VIEWS:
        shutil.copy(VIEWS / f"{name}.py", tmp_path)
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(tmp_path))
    runtime.up(world.settings, ("postgresql", "kafka"), tethered=True)
    yield start(world.settings, "stream.py")
    runtime.up(world.settings, ("postgresql",), tethered=True)


def require_status(client: Client, address: str, status: int) -> Response:
    response = client.post(page_view(), X_Forwarded_For=address)
    if response.status != status:
        raise ServiceDown(str(response))
    return response


def wait_for_status(client: Client, address: str, status: int) -> Response:
    """The first response with this status. The requests until then are no page views of the address."""
    found: list[Response] = []
    until(lambda: found.append(require_status(client, address, status)), SECONDS, f"{status} for {address}")
    return found[-1]


def check(address: str) -> tuple[int, dict[str, object]]:
    ended = truelog("limit", "check", address, "--json")
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


def test_an_address_over_its_limit_is_refused_until_the_limit_is_raised(world: World, stream: Application) -> None:
    sent = answer("limit", "set", ADDRESS, "--requests", "3", "--window", "1h")
    assert (sent["verb"], sent["max_requests"], sent["window_seconds"]) == ("set", 3, 3600)
    world.catch_up(stream, "rate_limits", ("rate_policy", "block"))
    limited = {"collector_rate_limit": True}
    with (
        another(world.settings, **limited, collector_trusted_proxies=PROXY) as (settings, _),
        another(world.settings, **limited) as (without_proxies, _),
    ):
        client = Client(settings, settings.producer_key.get_secret_value())
        for _ in range(3):
            assert client.post(page_view(ip=ADDRESS), X_Forwarded_For=ADDRESS).status == 200
        found = wait_for_check(ADDRESS, allowed=False)
        assert (found["why"], found["count"], found["limit"], found["window_seconds"]) == ("policy", 3, 3, 3600)
        assert "page_view" in found["positions"]["request_rates"]  # type: ignore[index]

        refused = wait_for_status(client, ADDRESS, 429)
        resets_at = datetime.fromisoformat(str(found["resets_at"]))
        seconds = (resets_at - datetime.now(UTC)).total_seconds()
        assert seconds - 5 < int(refused.headers["retry-after"]) < seconds + 5
        before = topics.end_offsets(settings, ["page_view"])
        assert require_status(client, ADDRESS, 429).body.keys() == {"error"}
        assert topics.end_offsets(settings, ["page_view"]) == before, "a refused request stores nothing"

        # The proxy appends the last entry. The sender may write any other.
        assert require_status(client, f"{OTHER}, {ADDRESS}", 429)
        assert require_status(client, f"{ADDRESS}, {OTHER}", 200)
        # This collector trusts no proxy, so its sender has the address of this machine.
        assert require_status(Client(without_proxies, client.key), ADDRESS, 200)

        answer("limit", "block", OTHER, "--reason", "scraping")
        assert wait_for_check(OTHER, why="block")["reason"] == "scraping"
        assert "retry-after" not in wait_for_status(client, OTHER, 429).headers
        answer("limit", "unblock", OTHER)
        wait_for_status(client, OTHER, 200)

        answer("limit", "set", ADDRESS, "--requests", "1000", "--window", "1h")
        wait_for_status(client, ADDRESS, 200)
        answer("limit", "set", ADDRESS, "--requests", "1", "--window", "1h")
        wait_for_status(client, ADDRESS, 429)
        keeper.stop(world.settings, "postgresql")
        wait_for_status(client, ADDRESS, 200)
        runtime.up(world.settings, ("postgresql",), tethered=True)
        wait_for_status(client, ADDRESS, 429)
        earlier = (datetime.now(UTC) - timedelta(hours=2)).isoformat().replace("+00:00", "Z")
        assert answer("limit", "check", ADDRESS, "--at", earlier)["count"] == 0
    assert stream.end() == 0


@pytest.mark.parametrize(
    "words",
    [
        ("check", "localhost"),
        ("check", ADDRESS, "--at", "soon"),
        ("check", ADDRESS, "--at", "0001-01-01T00:00:00Z"),
        ("set", ADDRESS, "--requests", "0", "--window", "1h"),
        ("set", ADDRESS, "--requests", "5", "--window", "15s"),
        ("set", "all", "--requests", "5", "--window", "2d"),
        ("block", "all"),
        ("block", ADDRESS, "--for", "999999w"),
        ("unblock", "1.2.3"),
    ],
)
def test_bad_use_changes_nothing(world: World, words: tuple[str, ...]) -> None:
    runtime.up(world.settings, ("postgresql", "kafka"), tethered=True)
    before = topics.end_offsets(world.settings, ["rate_policy", "block"])
    ended = truelog("limit", *words)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert topics.end_offsets(world.settings, ["rate_policy", "block"]) == before
