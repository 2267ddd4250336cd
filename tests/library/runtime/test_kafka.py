"""The Kafka service: the error message if its log folder cannot be formatted."""

from pathlib import Path

import pytest

import runtime
from runtime import kafka
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings


def test_the_message_of_a_failed_format_has_the_reason_and_no_key(settings: Settings, tmp_path: Path) -> None:
    made = runtime.set_up(tmp_path, random_ports=True)
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "data").write_text("a file in place of a folder")
    with pytest.raises(NotSetUp, match="No available log directories") as refused:
        kafka.configure(made)
    message = str(refused.value)
    assert "Not a directory" in message
    assert made.kafka_password.get_secret_value() not in message
    assert "Key=" not in message
