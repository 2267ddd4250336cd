"""Real services for tests: each starts when the first test asks for it, once a session, in its own home."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import runtime
from truelog.support.settings import Settings, default_home

# The same examples in every run: what fails here fails there, too.
hypothesis.settings.register_profile("seeded", derandomize=True)
hypothesis.settings.load_profile("seeded")

pytest_plugins = ("tests.spark_fixtures",)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How long each part took, set-up and tear-down included."""
    parts: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for each in reports:
            if isinstance(each, pytest.TestReport):
                parts[str(Path(each.nodeid.partition("::")[0]).parent)] += round(each.duration * 1000)
    for part, milliseconds in parts.most_common():
        terminalreporter.write_line(f"{part}: {milliseconds / 1000:.0f} s")


@pytest.fixture(scope="session")
def settings() -> Iterator[Settings]:
    """A fresh home with random ports and secrets; nothing runs yet, and nothing is left afterwards.

    The session's environment names this home and nothing else, so that no test reaches a platform in use.
    """
    with pytest.MonkeyPatch.context() as patch:
        jars = os.environ.get("TRUELOG_JARS", str(default_home() / "jars"))
        for name in [name for name in os.environ if name.startswith("TRUELOG_")]:
            patch.delenv(name)
        # Not under pytest's own folder, which is closed to the user that PostgreSQL steps down to.
        home = Path(tempfile.mkdtemp(prefix="truelog-"))
        patch.setenv("TRUELOG_HOME", str(home))
        patch.setenv("TRUELOG_JARS", jars)
        # A test's Spark lives for seconds: it never earns back what the second compiler costs it.
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
        made = runtime.set_up(home, random_ports=True)
        try:
            yield made
        finally:
            runtime.down(made)
            shutil.rmtree(home)


def _up(settings: Settings, *services: str) -> Settings:
    """Tethered: a test run that is killed takes its services along."""
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
    """All three, started side by side."""
    return _up(settings, "postgresql", "kafka", "s3")
