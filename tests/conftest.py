"""Real services for tests. Each service starts once per session, when a test first needs it, in a temporary home."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

import runtime
from truelog.support.settings import Settings, default_home

# Every run uses the same examples, so a failure can be reproduced elsewhere. Hypothesis would also draw constants that
# occur in the loaded modules, which depend on the tests before.
hypothesis.settings.register_profile("seeded", derandomize=True)
hypothesis.settings.load_profile("seeded")
vars(providers)["_get_local_constants"] = Constants

pytest_plugins = ("tests.spark_fixtures",)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how long each folder's tests took, including setup and teardown."""
    parts: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for each in reports:
            if isinstance(each, pytest.TestReport):
                parts[str(Path(each.nodeid.partition("::")[0]).parent)] += round(each.duration * 1000)
    for part, milliseconds in parts.most_common():
        terminalreporter.write_line(f"{part}: {milliseconds / 1000:.0f} s")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each `fresh` file its own platform: another parameter makes pytest end what depends on `settings`."""
    if metafunc.definition.get_closest_marker("fresh"):
        metafunc.parametrize("settings", [metafunc.module.__name__], indirect=True, ids=["fresh"])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the `fresh` files first, because they are long and would otherwise run alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("fresh") is None)


@pytest.fixture(scope="session")
def settings() -> Iterator[Settings]:
    """A fresh home with random ports and secrets. No service is running yet, and nothing is left afterwards.

    The session's environment points only to this home, so that no test reaches a platform in use.
    """
    with mock.patch.dict(os.environ):  # at the end, without the variables that this process's Spark has added
        jars = os.environ.get("TRUELOG_JARS", str(default_home() / "jars"))
        for name in [name for name in os.environ if name.startswith("TRUELOG_")]:
            del os.environ[name]
        # Not under pytest's own folder, because the unprivileged user that runs PostgreSQL cannot enter that folder.
        home = Path(tempfile.mkdtemp(prefix="truelog-"))
        os.environ |= {"TRUELOG_HOME": str(home), "TRUELOG_JARS": jars}
        # In a test, Spark runs for seconds only, so the second JIT compiler would take more time than it saves.
        # With one compiler, the code cache has 48 MB by default, and Java stops to compile when it is full.
        os.environ["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
        made = runtime.set_up(home, random_ports=True)
        try:
            yield made
        finally:
            runtime.down(made)
            shutil.rmtree(home)


def _up(settings: Settings, *services: str) -> Settings:
    """Start services that end with the test run, even if the test run is killed."""
    runtime.up(settings, services, tethered=True)
    return settings


@pytest.fixture(scope="session")
def postgresql(settings: Settings) -> Settings:
    return _up(settings, "postgresql")


@pytest.fixture(scope="session")
def kafka(settings: Settings) -> Settings:
    return _up(settings, "kafka")


@pytest.fixture(scope="session")
def s3(settings: Settings) -> Settings:
    return _up(settings, "s3")


@pytest.fixture(scope="session")
def platform(settings: Settings) -> Settings:
    """PostgreSQL, Kafka and S3, started in parallel."""
    return _up(settings, "postgresql", "kafka", "s3")
