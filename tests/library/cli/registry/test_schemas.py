"""`truelog registry keep`, `list` and `publish`, against a stub registry and Confluent's serializers."""

import json
from collections.abc import Iterator

import pytest

from tests.beds.schema_registry import StubRegistry, serving
from tests.command import answer, truelog
from truelog.cli.output import Exit
from truelog.control import event_registry
from truelog.log import topics
from truelog.support.settings import Settings

SCHEMA = {"type": "record", "name": "Click", "fields": [{"name": "event_id", "type": "string"}]}


@pytest.fixture
def registry() -> Iterator[StubRegistry]:
    with serving(StubRegistry()) as registry:
        yield registry


def test_schemas_are_kept_and_published(platform: Settings, registry: StubRegistry) -> None:
    types = event_registry.event_types(platform)
    topics.sync_topics(platform, types)
    version = types["click"].version
    assert answer("registry", "list")["schemas"] == []
    registry.avro("click", SCHEMA, {"event_id": "a"})
    kept = answer("registry", "keep", "click", exit_code=0, **registry.environment)
    assert kept == {"event": "click", "version": version + 1, "new": True, "schemas": [{"id": 1, "kind": "AVRO"}]}
    said = truelog("registry", "keep", "click", "--id", "1", **registry.environment).stdout
    assert said == f"click: version {version + 1} keeps the schemas 1 (AVRO)\n"

    published = answer("registry", "publish", "click", "search", exit_code=0, **registry.environment)["schemas"]
    assert [(each["event"], each["subject"], each["id"]) for each in published] == [
        ("click", "click-value", 2),
        ("search", "search-value", 3),
    ]
    listed = answer("registry", "list")["schemas"]
    assert [(each["event"], each["id"], each["kind"]) for each in listed] == [
        ("click", 1, "AVRO"),
        ("click", 2, "JSON"),
        ("search", 3, "JSON"),
    ]
    assert json.loads(listed[0]["text"]) == SCHEMA
    assert "click" in truelog("registry", "list").stdout

    registry.frozen.add("click-value")
    refused = truelog("registry", "publish", "click", "search", **registry.environment)
    assert refused.returncode == Exit.DIFFERENT
    assert "incompatible" in refused.stdout
    assert "search-value  schema 3" in refused.stdout


def test_without_a_registry_the_command_says_what_to_set(platform: Settings) -> None:
    ended = truelog("registry", "keep", "click", TRUELOG_SCHEMA_REGISTRY_URL="")
    assert (ended.returncode, ended.stdout) == (Exit.UNKNOWN, "")
    assert "TRUELOG_SCHEMA_REGISTRY_URL" in ended.stderr
    ended = truelog("registry", "publish", "nothing")
    assert ended.returncode == Exit.BAD_USE
