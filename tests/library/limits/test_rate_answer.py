"""The answer about an address: what it reads from the views, by index, and what it says about them."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.beds.lab import Lab
from tests.builders.views import merged_to
from tests.speed import record_speed
from truelog.limits import rate_answer as rate_limit_answer
from truelog.limits.rate import DEFAULT, Block, Policy, Requests, Usage, canonical_address
from truelog.log.positions import Positions
from truelog.storage.database import Connection, read_value
from truelog.support.errors import NotSetUp
from truelog.tables import deploy as table
from truelog.views import catalogue

AT = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
LIMITED, OTHER = "192.0.2.1", "2001:db8::1"


def before(seconds: float) -> datetime:
    return AT - timedelta(seconds=seconds)


@pytest.fixture
def deployed(lab: Lab) -> Iterator[Connection]:
    """The two views' tables, empty. What a test writes is rolled back."""
    with lab.connection.transaction(force_rollback=True):
        for name in rate_limit_answer.VIEWS:
            compiled = lab.compiled(name, catalogue.load_view(name))
            table.deploy_table(lab.connection, compiled)
            for each in ("state", "batch"):
                lab.connection.execute(f'TRUNCATE {each}."{compiled.own.name}"'.encode())
        yield lab.connection


def state_of(name: str) -> str:
    """The table of a view as the catalogue defines it now."""
    return f"state.{name}_v{catalogue.load_view(name).version}"


def requested(connection: Connection, address: str | None, **panes: int) -> None:
    """Count requests in the panes that begin so many seconds before the question: `s30=2`."""
    rows = [(before(int(seconds[1:])), address, number) for seconds, number in panes.items()]
    query = f"INSERT INTO {state_of('request_rates')} (pane, ip, requests) VALUES (%s, %s, %s)"
    with connection.cursor() as cursor:
        cursor.executemany(query.encode(), rows)


def limited(connection: Connection, address: str, policy: tuple[int, int] | None, block: Block | None = None) -> None:
    query = (
        f"INSERT INTO {state_of('rate_limits')} (address, policy_at, policy_deleted, max_requests, window_seconds, "
        "block_at, block_deleted, blocked_at, blocked_until, reason) "
        "VALUES (%(address)s, 1, %(removed)s, %(most)s, %(window)s, 1, %(unblocked)s, %(at)s, %(until)s, %(reason)s)"
    )
    connection.execute(
        query.encode(),
        {
            "address": address,
            "removed": policy is None,
            "most": policy and policy[0],
            "window": policy and policy[1],
            "unblocked": block is None,
            "at": AT,
            "until": block and block.until,
            "reason": block and block.reason,
        },
    )


def test_the_usage_of_several_addresses_has_the_panes_of_their_own_windows(deployed: Connection) -> None:
    requested(deployed, LIMITED, s0=1, s60=2, s70=4)
    requested(deployed, OTHER, s70=8, s3600=16, s3610=32)
    requested(deployed, None, s0=64)
    limited(deployed, LIMITED, (5, 60))
    found = rate_limit_answer.usages(deployed, [LIMITED, OTHER, "198.51.100.7"], AT)
    assert found == {
        LIMITED: Usage(Policy(5, 60), None, (Requests(before(60), 2), Requests(before(0), 1))),
        OTHER: Usage(DEFAULT, None, (Requests(before(3600), 16), Requests(before(70), 8))),
        "198.51.100.7": Usage(),
    }


def test_a_later_pane_is_not_read(deployed: Connection) -> None:
    requested(deployed, LIMITED, s0=1, s30=2)
    assert rate_limit_answer.usages(deployed, [LIMITED], before(20))[LIMITED].requests == (Requests(before(30), 2),)


def test_the_policy_for_all_applies_to_addresses_without_their_own(deployed: Connection) -> None:
    limited(deployed, "all", (7, 20))
    limited(deployed, LIMITED, (5, 60))
    limited(deployed, OTHER, None, Block(before(-60), "scraping"))
    found = rate_limit_answer.usages(deployed, [LIMITED, OTHER], AT)
    assert found == {
        LIMITED: Usage(Policy(5, 60)),
        OTHER: Usage(Policy(7, 20), Block(before(-60), "scraping")),
    }


def test_an_answer_says_what_it_was_answered_from(deployed: Connection) -> None:
    requested(deployed, LIMITED, s30=3)
    limited(deployed, LIMITED, (3, 60))
    for view, topic in (("request_rates", "page_view"), ("rate_limits", "block")):
        version = catalogue.load_view(view).version
        merged_to(deployed, view, Positions({topic: {0: 7}}, {topic: "an-id"}), version)
    found = rate_limit_answer.answer(deployed, LIMITED, AT).as_dict()
    positions = found.pop("positions")
    assert positions["request_rates"]["page_view"][0] == positions["rate_limits"]["block"][0] == 7
    found.pop("age")
    assert found == {
        "address": LIMITED,
        "at": AT,
        "allowed": False,
        "why": "policy",
        "reason": None,
        "count": 3,
        "limit": 3,
        "window_seconds": 60,
        "resets_at": before(-40),
        "advisory": True,
    }


def test_the_requests_of_an_address_are_read_by_index(deployed: Connection) -> None:
    deployed.execute("SET LOCAL enable_seqscan = off")
    parameters = {"addresses": [LIMITED], "since": [before(3610)], "at": AT}
    body = str(read_value(deployed, "SELECT prosrc FROM pg_proc WHERE oid = 'truelog.requests_of'::regproc"))
    query = body.partition("RETURN QUERY ")[2].partition(";")[0]
    for name, parameter in {
        "addresses": "%(addresses)s::text[]",
        "since": "%(since)s::timestamptz[]",
        "until": "%(at)s",
    }.items():
        query = query.replace(name, parameter)
    lines = [str(line) for (line,) in deployed.execute(f"EXPLAIN {query}".encode(), parameters)]
    conditions = [line for line in lines if "Index Cond" in line and "ip = " in line]
    assert len(conditions) == 2, "one for each layer"
    assert all("pane >" in each and "pane <=" in each for each in conditions), lines


CASES = {
    "within the policy": ({"s30": 3}, (5, 60), None),
    "over the policy": ({"s0": 1, "s30": 3, "s60": 2, "s70": 9}, (4, 60), None),
    "the default": ({"s10": 60, "s3600": 40, "s3610": 9}, None, None),
    "blocked until a time": ({"s30": 3}, (5, 60), Block(before(-20), "scraping")),
    "blocked, and over the policy for longer": ({"s0": 7}, (5, 60), Block(before(-20))),
    "blocked until a person ends it": ({}, (5, 60), Block(None, "scraping")),
    "a block that has ended": ({"s30": 3}, (5, 60), Block(before(5), "scraping")),
    "without requests": ({}, (1, 10), None),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("of_all", [False, True])
def test_the_function_in_sql_decides_alike(deployed: Connection, case: str, of_all: bool) -> None:
    panes, policy, block = CASES[case]
    requested(deployed, OTHER, **panes)
    if policy and of_all:
        limited(deployed, "all", policy)
    if block or (policy and not of_all):
        limited(deployed, OTHER, None if of_all else policy, block)
    said = rate_limit_answer.answer(deployed, OTHER, AT)
    columns = "allowed, why, reason, count, max_requests, window_seconds, resets_at"
    query = f"SELECT {columns} FROM truelog.limit_check(%s, %s)".encode()
    decided = said.decision
    assert deployed.execute(query, ("2001:DB8:0:0::1", AT)).fetchone() == (
        *(decided.allowed, decided.why, said.reason, decided.count),
        *(decided.policy.max_requests, decided.policy.window_seconds, decided.resets_at),
    )


@given(address=st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6), st.integers(0, 2**34).map(IPv6Address)))
@example(address=IPv6Address("::ffff:192.0.2.1"))
@example(address=IPv6Address("::1.2.3.4"))
@example(address=IPv6Address("2001:db8:0:1:1:1:1:1"))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_function_in_sql_writes_addresses_alike(connection: Connection, address: IPv4Address | IPv6Address) -> None:
    found = connection.execute("SELECT truelog.canonical_address(%s)", (address.exploded,)).fetchone()
    assert found == (canonical_address(str(address)),)


def test_the_function_in_sql_is_fast(deployed: Connection) -> None:
    requested(deployed, LIMITED, **{f"s{10 * pane}": 1 for pane in range(360)})
    times = list[float]()
    for _ in range(500):
        began = time.perf_counter()
        deployed.execute("SELECT allowed FROM truelog.limit_check(%s, %s)", (LIMITED, AT)).fetchall()
        times.append(time.perf_counter() - began)
    record_speed("limit check in SQL, 99th percentile", sorted(times)[494])


def test_views_that_do_not_exist_yet_are_named(lab: Lab) -> None:
    with lab.connection.transaction(force_rollback=True):
        lab.connection.execute("DROP VIEW IF EXISTS views.rate_limits CASCADE")
        with pytest.raises(NotSetUp, match="rate_limits"):
            rate_limit_answer.usages(lab.connection, [LIMITED], AT)
