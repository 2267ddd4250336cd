"""A service that writes events does not start in an environment that reads the events of another one."""

import subprocess
import sys
from threading import Event

import pytest

from tests.deadline import deadline
from truelog.services import registry
from truelog.services.collector.service import create_app
from truelog.services.commands import service as commands
from truelog.services.ticks import service as ticks
from truelog.support.errors import ReadsOnly
from truelog.support.settings import KafkaUser, Settings

READS = {"namespace": "blue", "reads_namespace": "red", "reads_bucket": "red"}
WRITERS = {KafkaUser.COLLECTOR, KafkaUser.PRODUCER, KafkaUser.TICKS}


@pytest.fixture
def blue(settings: Settings) -> Settings:
    return settings.model_copy(update=READS)


def test_each_writer_of_events_says_so(blue: Settings) -> None:
    writing = {each.name for each in registry.SERVICES if each.writes_events}
    assert writing >= {each.name for each in registry.SERVICES if each.kafka in WRITERS}
    assert writing == {"ticks", "commands", "collector"}


def test_it_refuses_before_it_asks_a_server(blue: Settings) -> None:
    for start in (create_app, lambda s: ticks.run(s, Event()), lambda s: commands.run(s, Event())):
        with pytest.raises(ReadsOnly, match=r"is a matter of the environment red: .*TRUELOG_READS_BUCKET.*Ask there"):
            start(blue)


@pytest.mark.parametrize("name", ["ticks", "collector"])
def test_its_process_ends_with_the_reason(settings: Settings, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, value in READS.items():
        monkeypatch.setenv(f"TRUELOG_{setting.upper()}", value)
    words = [sys.executable, "-m", f"truelog.services.{name}.service"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=deadline(60), check=False)
    assert ended.returncode != 0
    assert f"the service {name} is a matter of the environment red" in ended.stderr
