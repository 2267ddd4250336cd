"""A process asks the JVM for a class, and for its methods, once: see `docs/numbers.md`."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

_LOOKUP = "r\n"  # py4j's question whether a class or a member exists


def make_columns() -> None:
    F.transform(F.array(F.col("a"), F.lit(1)), lambda each: F.coalesce(each + 1, F.lit(0)))


def test_columns_made_again_look_nothing_up(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    gateway: Any = spark.sparkContext._gateway
    client = type(gateway._gateway_client)
    send = client.send_command

    def recorded(itself: Any, command: str, *arguments: Any, **options: Any) -> Any:
        sent.append(command)
        return send(itself, command, *arguments, **options)

    make_columns()
    monkeypatch.setattr(client, "send_command", recorded)
    make_columns()

    assert len(sent) > 5
    assert [command for command in sent if command.startswith(_LOOKUP)] == []
