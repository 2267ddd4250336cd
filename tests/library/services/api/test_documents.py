"""The OpenAPI document, and requests that schemathesis makes from it: right ones, and wrong ones."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import runtime
from tests.library.relay.published import publishing
from tests.library.services.api.asking import Asking
from tests.library.services.api.shop_views import PAGES, PRODUCTS, count, limiting, reach, sell
from truelog.services.api.declaration import (
    CATALOG_NAMESPACES,
    CATALOG_TABLES,
    CHANGES,
    HTTP,
    OF_CATALOG,
    RATE_LIMIT,
)
from truelog.services.declaration import HEALTH, Route
from truelog.storage.database import Connection
from truelog.support.settings import Settings

if TYPE_CHECKING:
    # Imported where it is used, because the import takes seconds in each worker.
    import schemathesis

MODES = ("positive", "negative")
EXAMPLES = 40
# /health has nothing to vary, and the other routes have tests of their own.
FUZZED = [route for route in HTTP.routes if route not in (HEALTH, CHANGES, RATE_LIMIT, *OF_CATALOG)]
LISTS = (CATALOG_NAMESPACES, CATALOG_TABLES)
Values = Mapping[str, st.SearchStrategy[str]]
VALUES: Values = {
    "view": st.sampled_from([PAGES, PRODUCTS]),
    "relation": st.sampled_from(["busy", "documents"]),
    "address": st.sampled_from([f"192.0.2.{number}" for number in range(1, 5)]),
    "namespace": st.just("log"),
}
# Schemathesis reads one event of a stream. A stream has no end, and a quiet view sends no further event.
ONE_EVENT = {"max-stream-events": 1}


@pytest.fixture(autouse=True, scope="module")
def _filled(deployed: Connection) -> None:
    count(deployed, [(host, datetime(2026, 1, 1, tzinfo=UTC), 150) for host in ("a", "b", None)])
    sell(deployed, red_shoes=3)
    reach(deployed, 5)


def test_the_document_has_every_route_with_an_example(api: Asking) -> None:
    document = api.get("/openapi.json").json()
    found = {(method.upper(), path) for path, each in document["paths"].items() for method in each}
    assert found == {(route.method, route.path) for route in HTTP.routes}
    named = {name for name, each in document["components"]["schemas"].items() if "example" in each}
    assert named >= {"Views", "View", "RowPage", "RateLimit", "ScopedToken"}
    operations = [each for path in document["paths"].values() for each in path.values()]
    parameters = [each for operation in operations for each in operation.get("parameters", [])]
    assert [each["name"] for each in parameters if "examples" not in each["schema"]] == []
    assert {"view", "relation", "key", "at_least", "token", "words", "namespace", "pageToken"} <= {
        each["name"] for each in parameters
    }
    assert document["paths"]["/health"]["get"]["security"] == []
    assert "detail" in document["components"]["schemas"]["Problem"]["properties"]


@pytest.fixture(scope="module")
def served(postgresql: Settings, deployed: Connection) -> str:
    """The URL of the service as the supervisor runs it."""
    runtime.up(postgresql, ("api",), tethered=True)
    address = postgresql.address("api")
    return f"http://{address.host}:{address.port}"


def checks() -> Sequence[Any]:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks as of_responses

    return (
        not_a_server_error,
        of_responses.status_code_conformance,
        of_responses.content_type_conformance,
        of_responses.response_headers_conformance,
        of_responses.response_schema_conformance,
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("route", FUZZED, ids=lambda route: f"{route.method} {route.path}")
def test_no_request_finds_a_defect(api: Asking, served: str, route: Route, mode: str) -> None:
    fuzz(api, served, route, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("route", LISTS, ids=lambda route: route.path)
def test_no_list_of_the_catalog_finds_a_defect(
    api: Asking, served: str, postgresql: Settings, route: Route, mode: str
) -> None:
    answers = fuzz(api, served, route, mode, key=postgresql.admin_key.get_secret_value())
    assert 200 in {each.status_code for each in answers}


@pytest.mark.parametrize("mode", MODES)
def test_no_subscriber_finds_a_defect(
    api: Asking, served: str, postgresql: Settings, deployed: Connection, mode: str
) -> None:
    """One view publishes its changes, so that streams begin. The other one does not.

    A stream may also begin if a value that the schema forbids reads as a version, such as `1.0`.
    """
    with publishing(postgresql, deployed) as view:
        view.change({"p1": "1", "p2": "2"})
        answers = fuzz(api, served, CHANGES, mode, {"view": st.sampled_from([view.compiled.name, PAGES])})
    assert mode == "negative" or any(each.status_code == 200 for each in answers)


@pytest.mark.parametrize("mode", MODES)
def test_no_question_about_an_address_finds_a_defect(api: Asking, served: str, deployed: Connection, mode: str) -> None:
    """There are rows about addresses: a block, a policy and requests."""
    with limiting(deployed):
        answers = fuzz(api, served, RATE_LIMIT, mode)
    found = [each.json() for each in answers if each.status_code == 200]
    assert {each["why"] for each in found} >= {"block"}
    assert {each["limit"] for each in found} >= {5}


def fuzz(
    api: Asking, served: str, route: Route, mode: str, values: Values = VALUES, *, key: str | None = None
) -> list[Any]:
    """The answers to requests of a mode. Half of the paths name what exists, so that parameters are reached."""
    import schemathesis

    config = schemathesis.Config.from_dict(ONE_EVENT)
    schema = schemathesis.openapi.from_dict(api.get("/openapi.json").json(), config=config)
    asked = schema[route.path][route.method].as_strategy(generation_mode=schemathesis.GenerationMode(mode))
    sent, answers = {"Authorization": f"Bearer {key or api.key}"}, list[Any]()

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(asked, st.data())
    def ask(case: "schemathesis.Case[Any]", data: st.DataObject) -> None:
        for name in (case.path_parameters or {}).keys() & values.keys():
            if data.draw(st.booleans()):
                case.path_parameters[name] = data.draw(values[name])
        answers.append(case.call(base_url=served, headers=sent))
        case.validate_response(answers[-1], checks=list(checks()))

    ask()
    return answers


def test_no_log_has_a_key_or_a_token(api: Asking, served: str, postgresql: Settings) -> None:
    """The service has logged its start, and a connection that PostgreSQL has ended."""
    held = api.request("POST", "/tokens", json={"view": PAGES, "key": {"host": "a"}}).json()["token"]
    ask = [("", api.key), ("?where=x", api.key), ("", held), ("", f"{held}x"), ("", "nobody.secret")]
    statuses = [
        httpx.get(f"{served}/views/{PAGES}/rows{query}", headers={"Authorization": f"Bearer {key}"}).status_code
        for query, key in ask
    ]
    assert statuses == [200, 422, 200, 401, 401]
    in_address = [("rows", held), ("changes", held), ("changes", f"{held}x"), ("changes", api.key)]
    statuses = [httpx.get(f"{served}/views/{PAGES}/{path}?token={key}").status_code for path, key in in_address]
    assert statuses == [401, 409, 401, 401]  # the view does not publish its changes
    text = (postgresql.home / "logs" / "api.log").read_text()
    assert "Uvicorn running" in text
    secrets = [api.key.partition(".")[2], held, postgresql.api_password.get_secret_value()]
    secrets += [postgresql.api_token_secret.get_secret_value()]
    assert [each for each in secrets if each in text] == []
