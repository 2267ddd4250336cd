"""The AsyncAPI document: valid by the official schema, and true of the records that are in the topics."""

import copy
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from tests.builders.outputs import an_output, forget_outputs
from tests.library.posted import RECEIPT
from tests.library.standards import asyncapi_defects
from tests.scenes.collector_client import page_view
from truelog.reports.contracts import asyncapi
from truelog.schema.loading.events import load_events
from truelog.storage.database import Connection
from truelog.support import timestamps
from truelog.support.settings import Settings

TYPES = load_events()
VIEW = '''"""Rows of a test."""
from truelog import Sum, View
VIEW = View(
    reads=("page_view",), transform=lambda page_view: page_view, key=("a",), measures={"n": Sum()}, publish=True
)
'''
ROWS = """
CREATE VIEW views.sample_v1 AS
    SELECT 'a'::text AS a, now() AS at, 1.5::numeric(9, 2) AS n, ARRAY[1::bigint] AS m, '{}'::jsonb AS o;
COMMENT ON COLUMN views.sample_v1.a IS 'what a means';
"""


@pytest.fixture
def document(postgresql: Settings, connection: Connection, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The document of all shipped event types, and of a view with an output."""
    (tmp_path / "sample.py").write_text(VIEW)
    connection.execute(ROWS.encode())
    an_output(connection, "sample", ago=timedelta(0))
    settings = postgresql.model_copy(update={"views_folder": tmp_path})
    yield asyncapi.document(settings, connection, TYPES.values())
    forget_outputs(connection)
    connection.execute("DROP VIEW views.sample_v1")


def test_the_document_is_valid_and_the_schema_notices_defects(document: dict[str, Any]) -> None:
    assert asyncapi_defects(document) == []
    for planted in ("channel", "action", "messages"):
        wrong = copy.deepcopy(document)
        if planted == "messages":
            wrong["channels"]["page_view"]["messages"]["page_view"]["payload"]["type"] = "record"
        else:
            wrong["operations"]["receive_page_view"][planted] = {"$ref": "#/channels/none"}
        assert asyncapi_defects(wrong)


def test_each_topic_is_a_channel(document: dict[str, Any]) -> None:
    assert document["channels"].keys() == {*TYPES, "view.sample.v1"}
    assert {"receive_page_view", "send_ticks", "send_view_sample_v1"} <= document["operations"].keys()
    shown = document["channels"]["cart_event"]
    assert shown["bindings"]["kafka"]["partitions"] == 4
    message = shown["messages"]["cart_event"]
    assert message["bindings"]["kafka"]["key"]["description"] == "The field cart_id."
    assert message["payload"]["properties"]["verb"]["description"] == "What happened."
    customers = document["channels"]["customers"]["messages"]["customers"]
    assert (customers["payload"].keys(), "key" in customers["bindings"]["kafka"]) == ({"description"}, False)


def test_the_schemas_are_true_of_records(document: dict[str, Any], connection: Connection) -> None:
    """Those of the records of an output, with their headers, are in `tests/library/relay/test_view_outputs.py`."""
    event = Draft7Validator(document["channels"]["page_view"]["messages"]["page_view"]["payload"])
    assert event.is_valid(page_view() | {"received_at": timestamps.to_text(RECEIPT.time)})
    assert not event.is_valid(page_view(status=99))
    changed, removed = (document["channels"]["view.sample.v1"]["messages"][each] for each in ("changed", "removed"))
    assert Draft7Validator(removed["payload"]).is_valid(None)
    payload = Draft7Validator(changed["payload"])
    [(value,)] = connection.execute("SELECT row_to_json(sample) FROM views.sample_v1 AS sample").fetchall()
    assert payload.is_valid(value)
    assert payload.is_valid(dict.fromkeys(value))
    for wrong in ({"a": 5}, {"n": True}, {"m": ["x"]}, {"more": 1}):
        assert not payload.is_valid(value | wrong)
    assert changed["payload"]["properties"]["a"]["description"] == "what a means"
    assert changed["bindings"]["kafka"]["key"]["required"] == ["a"]


def test_the_servers_are_those_of_kafka(postgresql: Settings, connection: Connection) -> None:
    changes = {"kafka_bootstrap": "one:9092,two:9093", "kafka_protocol": "SASL_SSL", "kafka_mechanism": "PLAIN"}
    found = asyncapi.document(postgresql.model_copy(update=changes), connection, [])
    assert asyncapi_defects(found) == []
    assert [each["host"] for each in found["servers"].values()] == ["one:9092", "two:9093"]
    assert found["servers"]["kafka"]["protocol"] == "kafka-secure"
    assert found["servers"]["kafka"]["security"] == [{"type": "plain"}]
    tokens = {"kafka_oauth_token_url": "https://login.example/token", "kafka_oauth_scope": "log.read log.write"}
    changes |= {"kafka_mechanism": "OAUTHBEARER"} | tokens
    signed = asyncapi.document(postgresql.model_copy(update=changes), connection, [])
    assert asyncapi_defects(signed) == []
    [sign_in] = signed["servers"]["kafka"]["security"]
    assert (sign_in["type"], sign_in["scopes"]) == ("oauth2", ["log.read", "log.write"])
    assert sign_in["flows"]["clientCredentials"]["tokenUrl"] == "https://login.example/token"
    plain = asyncapi.document(postgresql.model_copy(update={"kafka_protocol": "PLAINTEXT"}), connection, [])
    assert "security" not in plain["servers"]["kafka"]
    assert asyncapi_defects(plain) == []
