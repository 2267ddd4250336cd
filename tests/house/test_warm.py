"""Which test run uses the servers of `make platform`, without starting any."""

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

import runtime
from tests import warm
from tests.warm import Platform, find


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A platform that this process offers."""
    home = tmp_path / "home"
    runtime.set_up(home, random_ports=True)
    monkeypatch.setattr(warm, "FILE", tmp_path / "test-platform.json")
    return offer(Platform(os.getpid(), str(home), 1, "secret"))


def offer(platform: Platform) -> Platform:
    warm.FILE.write_text(json.dumps(asdict(platform)))
    return platform


def test_one_run_at_a_time_uses_the_platform(offered: Platform) -> None:
    first = find()
    assert first
    assert str(first.settings.home) == offered.home
    assert find() is None
    first.end()
    again = find()
    assert again
    again.end()
    assert Path(offered.home).is_dir()


def test_files_of_different_runs_have_different_names(offered: Platform) -> None:
    servers = find()
    assert servers
    made = [servers.environment() for _ in range(2)]
    names = {each.settings.database_name for each in made}
    assert len(names) == 2
    assert all(name.startswith(f"run{os.getpid()}") for name in names)
    for each in made:
        each.end()
    servers.end()


def test_without_a_platform_a_run_starts_its_own_servers(offered: Platform) -> None:
    warm.FILE.unlink()
    assert find() is None


def test_a_killed_platform_is_not_used(offered: Platform) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    offer(Platform(ended.pid, offered.home, 1, "secret"))
    assert find() is None
