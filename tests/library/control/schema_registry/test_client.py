"""The client of a schema registry: what it answers when the registry is down, strange, or refuses."""

import pytest

from tests.beds.schema_registry import PASSWORD, USER, StubRegistry, serving
from tests.library.listener import FAILS, HANGS, Listener
from truelog.control.schema_registry.client import SchemaRegistryClient, Unanswered
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.settings import Settings


def client(settings: Settings, url: str, user: str = USER, seconds: float = 10) -> SchemaRegistryClient:
    given = Settings(home=settings.home, schema_registry_password=PASSWORD)
    address = {"schema_registry_url": url, "schema_registry_user": user, "schema_registry_seconds": seconds}
    return SchemaRegistryClient(given.model_copy(update=address))


def test_schemas_by_number_and_by_subject(settings: Settings) -> None:
    with serving(StubRegistry()) as registry:
        asked = client(settings, registry.url)
        assert asked.schemas_of("a/b value") == []
        assert asked.register("a/b value", {"type": "object"}).id == 1
        registry.add("a/b value", {"schema": '"string"'})
        assert [(each.id, each.kind) for each in asked.schemas_of("a/b value")] == [(1, "JSON"), (2, "AVRO")]
        assert asked.schema(2).text == '"string"'


def test_a_wrong_credential_is_refused_and_not_shown(settings: Settings) -> None:
    with serving(StubRegistry()) as registry:
        for user in ("", "somebody"):
            with pytest.raises(Unanswered, match="answered 401") as refused:
                client(settings, registry.url, user).schema(1)
            assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("url", ["", "registry:8081", "ftp://registry", "http://user:secret@registry", "x"])
def test_an_address_that_is_none(settings: Settings, url: str) -> None:
    with pytest.raises(NotSetUp, match="TRUELOG_SCHEMA_REGISTRY_URL") as refused:
        client(settings, url).schema(1)
    assert "secret" not in str(refused.value)


def test_a_registry_that_is_down_silent_or_something_else(settings: Settings) -> None:
    listener = Listener()
    with pytest.raises(Unanswered, match="answered 202"):
        client(settings, listener.url).register("a", {})
    listener.mood = FAILS
    with pytest.raises(ServiceDown, match="answered 503"):
        client(settings, listener.url).register("a", {})
    listener.mood = HANGS
    with pytest.raises(ServiceDown, match="does not answer: ReadTimeout"):
        client(settings, listener.url, seconds=0.2).register("a", {})
    listener.away()
    with pytest.raises(ServiceDown, match="does not answer: ConnectError"):
        client(settings, listener.url).schema(1)
