"""Asks each route of the pages hostile questions inside this process: `hostile_requests EXAMPLES LETTERS RECORDS`.

First come the answers about the stored hostile records, then generated parameters and bodies of each route. The process
fails with the request at the first answer that a page could not show. It prints the number of requests by route.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_from_bytes

import httpx
from fastapi.dependencies.utils import get_flat_dependant
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.deadline import deadline
from tests.pages.asgi_answers import permissive
from tests.pages.hostile_bytes import PAGE_VIEW, PAYMENT

_TEXT = st.one_of(
    st.text(st.characters(), max_size=40),  # with U+0000 and half characters
    st.sampled_from(("\0", "\ud800", "x" * 20_000, "[" * 5_000, "%s", "'; --", "../..", "9" * 5_000)),
)
_NUMBER = st.one_of(st.integers(), st.sampled_from((0, 1, -1, 59, 2**31, 2**63 - 1, 2**63, 10**400, "1e308", "inf")))
_TIME = st.sampled_from(("0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "2026-11-20", "2026-11-20T00:00:00Z"))
_ANY = st.one_of(_TEXT, _NUMBER, _TIME)
_VIEW = st.sampled_from(("page_views", "click_through", "request_rates", "broken"))
_WHERE = st.builds("{}{}{}".format, st.sampled_from(("host", "minute", "views", "note")), st.sampled_from("=<>"), _ANY)
# Values that reach the code behind the first check.
_KNOWN: Mapping[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("name", "view", "reader", "relation"), _VIEW),
    "topic": st.sampled_from((PAGE_VIEW, PAYMENT, "dead_letter")),
    "where": _WHERE,
    "form": st.sampled_from(("csv", "json", "parquet")),
    "number": st.just(1),
    "hours": st.sampled_from((0.1, 24, 72, 366 * 24)),
    "limit": st.integers(1, 50),
    "id": st.sampled_from((1, 59, 60)),
    "dry_run": st.just(value=True),
    "one": st.fixed_dictionaries({"partition": st.just(0), "offset": st.integers(0, 60)}),
}
_DEEP = b"[" * 100_000 + b"]" * 100_000
Response = httpx.Response


class Asker:
    """Sends requests and refuses answers that a page could not show."""

    def __init__(self, client: httpx.AsyncClient, run: asyncio.Runner) -> None:
        self.client, self.run, self.asked = client, run, Counter[str]()

    def ask(self, route: str, method: str, address: str, content: bytes | None = None) -> Response:
        headers = {"x-truelog": "page", "content-type": "application/json"}
        found = self.run.run(self.client.request(method, f"/{address}", content=content, headers=headers))
        said = f"{method} {address[:500]} {(content or b'')[:500]!r}: {found.status_code} {found.text[:500]}"
        assert found.status_code < 500 or found.status_code == 503, said
        if found.headers.get("content-type", "").startswith("application/json") or found.status_code >= 400:
            shown = json.loads(found.content, parse_constant=_refuse)
            assert found.status_code < 400 or shown["detail"], said
        assert "content-security-policy" in found.headers, said
        self.asked[route] += 1
        return found


def _refuse(constant: str) -> None:
    raise AssertionError(f"JSON has no {constant}")


def about_stored(asker: Asker, letters: int, records: int) -> None:
    """Each stored record, on each page that shows it."""
    for topic, number in (("dead_letter", letters // 2), (PAGE_VIEW, records), (PAYMENT, records)):
        for offset in range(number):
            asker.ask("record", "GET", f"data/record?topic={topic}&partition=0&offset={offset}")
        shown = asker.ask("records", "GET", f"data/records?topic={topic}&until=2100-01-01T00:00:00Z").json()
        assert len(shown["records"]) == min(50, number), shown
    listed = asker.ask("dead-letters", "GET", "data/dead-letters?hours=175000&limit=500").json()
    assert listed["total"] >= letters, listed["total"]
    for each in dict.fromkeys(listed["types"]):
        asker.ask("dead-letters", "GET", f"data/dead-letters?hours=175000&type={_quoted(each)}")
    asker.ask("replay", "POST", "dead-letters/replay", b'{"dry_run": true, "chosen": {"hours": 175000}}')


def about_nul(asker: Asker, route: APIRoute) -> None:
    """PostgreSQL would refuse U+0000 with an error that looks like a defect."""
    names = _names(get_flat_dependant(route.dependant, skip_repeats=True).query_params)
    if names and "{" not in route.path and "GET" in route.methods:
        address = route.path.removeprefix("/") + "?" + "&".join(f"{name}=%00" for name in names)
        assert asker.ask("nul", "GET", address).status_code in (400, 422), address


def about_anything(asker: Asker, route: APIRoute, examples: int) -> None:
    """Generated parameters and bodies of a route."""
    method = next(iter(sorted(route.methods)))
    flat = get_flat_dependant(route.dependant, skip_repeats=True)
    names = _names(flat.query_params)

    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def generated(data: st.DataObject) -> None:
        path = route.path
        for each in flat.path_params:
            path = path.replace(f"{{{each.name}}}", _quoted(data.draw(_value(each.name))))
        chosen = [name for name in names if data.draw(st.integers(0, 3))]
        query = "&".join(f"{name}={_quoted(data.draw(_value(name)))}" for name in chosen)
        body = data.draw(_body(_names(flat.body_params))) if method != "GET" else None
        asker.ask(route.path, method, f"{path.removeprefix('/')}?{query}", body)

    generated()


def _names(given_fields: Any) -> list[str]:
    """The names that a request may give, those of a model's fields for a model."""
    found = list[str]()
    for each in given_fields:
        kind = each.field_info.annotation
        is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
        found += kind.model_fields if is_model else [each.alias]
    return found


def _value(name: str) -> st.SearchStrategy[Any]:
    return st.one_of(_KNOWN[name], _KNOWN[name], _ANY) if name in _KNOWN else _ANY


def _body(names: list[str]) -> st.SearchStrategy[bytes]:
    value = st.recursive(st.one_of(st.none(), st.booleans(), st.floats(), _ANY), _nested, max_leaves=5)
    formed = st.fixed_dictionaries({name: st.one_of(_value(name), value) for name in names})
    return st.one_of(formed.map(_json), value.map(_json), st.binary(max_size=50), st.just(_DEEP))


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner) | st.dictionaries(_TEXT, inner)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _quoted(value: Any) -> str:
    return quote_from_bytes(str(value).encode("utf-8", "surrogatepass"), safe="")


def main(examples: int, letters: int, records: int) -> Mapping[str, int]:
    application = permissive()
    transport = httpx.ASGITransport(application)
    client = httpx.AsyncClient(transport=transport, base_url="http://pages", timeout=deadline(120))
    with asyncio.Runner() as run:
        asker = Asker(client, run)
        about_stored(asker, letters, records)
        for route in application.routes:
            if isinstance(route, APIRoute):
                about_nul(asker, route)
                about_anything(asker, route, examples)
        run.run(client.aclose())
    return asker.asked


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"asked": main(*map(int, sys.argv[1:]))}) + "\n")
