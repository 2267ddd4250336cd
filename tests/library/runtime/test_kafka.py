"""Kafka as a service: what it says when its log cannot be made."""

from pathlib import Path

import pytest

import runtime
from runtime import kafka
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings


def test_a_log_that_cannot_be_made_says_why_and_no_key(settings: Settings, tmp_path: Path) -> None:
    made = runtime.set_up(tmp_path, random_ports=True)
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "data").write_text("a file, where a folder has to be")
    with pytest.raises(NotSetUp, match="No available log directories") as refused:
        kafka.configure(made)
    told = str(refused.value)
    assert "Not a directory" in told
    assert made.kafka_password.get_secret_value() not in told
    assert "Key=" not in told
