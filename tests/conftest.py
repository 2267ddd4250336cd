"""Real services for tests. Each test file has its own home, database, bucket and topics: see `tests/servers.py`."""

import gc
import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING
from unittest import mock

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests import warm
from tests.deadline import deadline
from tests.servers import STORES, Environment, OwnServers, SharedServers, isolated
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NEW_OBJECTS = 20_000  # after so many, the garbage collector looks for cycles

# Every run uses the same examples, so a failure can be reproduced elsewhere. Hypothesis would also draw constants that
# occur in the loaded modules, which depend on the tests before. A slow example on a busy machine is not a failure.
hypothesis.settings.register_profile(
    "seeded", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("seeded")
vars(providers)["_get_local_constants"] = Constants

pytest_plugins = (
    "tests.spark_fixtures",
    "tests.authority_fixtures",
    "tests.speed",
    "tests.plugins.shards",
    "tests.plugins.order",
    "tests.plugins.costs",
)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Multiply the time limit of a test, as every other deadline. An xdist worker gets the controller's limit."""
    if getattr(config.option, "timeout", 0) is None:
        config.option.timeout = deadline(float(config.getini("timeout")))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector skip what collection has imported. It would look at all of that again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS)
        gc.enable()


def pytest_unconfigure() -> None:
    """Let Python end as usual. Some libraries report each of their objects that the garbage collector skips then."""
    gc.unfreeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cold", action="store_true", help="do not use the servers of `make platform`")


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest) -> Iterator[SharedServers]:
    """The servers that the files of this worker share: those of `make platform`, or new ones, which start when needed.

    Nothing of new servers is left afterwards.
    """
    with isolated():
        has_own_jvm = any(item.get_closest_marker("own_jvm") for item in request.session.items)
        is_cold = has_own_jvm or request.config.option.cold or hasattr(request.config, "workerinput")
        made = (None if is_cold else warm.find()) or SharedServers()
        os.environ["TRUELOG_HOME"] = str(made.settings.home)
        try:
            yield made
        finally:
            made.end()


@pytest.fixture(scope="module")
def environment(request: pytest.FixtureRequest, servers: SharedServers) -> Iterator[Environment]:
    """The environment of a test file. If the file has the mark `own_servers`, no other file uses its servers."""
    has_own = request.node.get_closest_marker("own_servers") is not None
    made = OwnServers() if has_own else servers.environment()
    with mock.patch.dict(os.environ, TRUELOG_HOME=str(made.settings.home)):
        try:
            yield made
        finally:
            made.end()


@pytest.fixture(scope="module")
def settings(environment: Environment) -> Settings:
    """The file's settings. Its database, topics and bucket do not exist yet."""
    return environment.settings


@pytest.fixture(scope="module")
def postgresql(environment: Environment) -> Settings:
    return environment.provide("postgresql")


@pytest.fixture(scope="module")
def kafka(environment: Environment) -> Settings:
    return environment.provide("kafka")


@pytest.fixture(scope="module")
def s3(environment: Environment) -> Settings:
    return environment.provide("s3")


@pytest.fixture(scope="module")
def platform(environment: Environment) -> Settings:
    """PostgreSQL, Kafka and S3, with the event types registered."""
    return environment.provide(*STORES)


@pytest.fixture(scope="session")
def chromium() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    from tests.pages import browsing

    with sync_playwright() as playwright:
        browser = browsing.launch(playwright)
        yield browser
        browser.close()
