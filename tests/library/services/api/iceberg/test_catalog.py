"""The archive by Iceberg's REST protocol, with PyIceberg's client: what it reads, and who may read it."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import ListTablesResponse, TableResponse
from pyiceberg.catalog.rest.response import ErrorResponse
from pyiceberg.exceptions import (
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    ServiceUnavailableError,
    UnauthorizedError,
)

from tests.builders.erasures import forget_erasures, lacks
from tests.builders.event_types import an_event_type
from tests.builders.views import a_view
from tests.deadline import deadline
from tests.library.archive_files import OF_TWO_DAYS, TOPIC, TOPIC_ID, append_value, archive_values, erasures_of
from tests.library.services.api.streaming import Served, serving
from truelog.archive.analyst import run_query
from truelog.archive.erasing.erase import ArchiveEraser
from truelog.archive.table import identifier, open_catalog
from truelog.schema.loading.events import load_events
from truelog.services.api.declaration import CATALOG, OF_CATALOG
from truelog.storage.database import connect
from truelog.support.settings import PROJECT, Settings

PAGE = (PROJECT / "docs" / "bi.md").read_text()
[STEPS] = re.findall(r"```python\n(import os\n\nimport duckdb.*?)```", PAGE, re.DOTALL)
TABLE = f"/namespaces/log/tables/{TOPIC}"
COLUMNS = ("partition", "offset", "value", "host", "page", "visitor_id", "erased", "invalid")
WRITES = (
    ("POST", "/namespaces"),
    ("DELETE", "/namespaces/log"),
    ("POST", "/namespaces/log/tables"),
    ("POST", TABLE),
    ("DELETE", TABLE),
)


def attach(served: Served, key: str, **more: str) -> Catalog:
    """A catalog as an engine makes it. It knows no address but that of the API."""
    store = served.settings.object_store()
    keys = {name: store[name] for name in ("s3.access-key-id", "s3.secret-access-key")}
    return load_catalog("lake", **{"type": "rest", "uri": f"{served.url}/iceberg", "token": key, **keys, **more})


def ask(served: Served, key: str, path: str, method: str = "GET", headers: Any = None, **asked: Any) -> httpx.Response:
    sent = {"Authorization": f"Bearer {key}"} | (headers or {})
    return httpx.request(method, f"{served.url}{CATALOG}{path}", headers=sent, params=asked, timeout=deadline(10))


def rows(catalog: Catalog, snapshot: int | None = None) -> list[dict[str, Any]]:
    found = catalog.load_table(identifier(TOPIC)).scan(snapshot_id=snapshot).to_arrow().to_pylist()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def snapshots(catalog: Catalog) -> list[int]:
    return [each.snapshot_id for each in catalog.load_table(identifier(TOPIC)).snapshots()]


def test_the_steps_of_the_page_read_the_events_of_a_day(
    archived: Settings,
    served: Served,
    archivist: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TRUELOG_API", served.url)
    monkeypatch.setenv("ARCHIVE_TOKEN", archivist)
    monkeypatch.setenv("ARCHIVE_KEY", archived.s3_access_key)
    monkeypatch.setenv("ARCHIVE_SECRET", archived.s3_secret_key.get_secret_value())
    names: dict[str, Any] = {}
    exec(STEPS, names)  # the example of the page
    assert names["viewed"].to_pylist() == [{"host": "shop.example", "page": "/a", "visitor_id": "v"}]
    assert re.search(r"shop\.example\W+/a\W+1\b", capsys.readouterr().out)


@hypothesis(max_examples=4, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.sampled_from(OF_TWO_DAYS), max_size=4))
def test_rows_are_those_of_postgresqls_catalog_and_of_sql(
    platform: Settings, served: Served, archivist: str, values: Sequence[bytes]
) -> None:
    archive_values(platform, values)
    lake = attach(served, archivist)
    with open_catalog(platform) as catalog:
        assert snapshots(lake) == snapshots(catalog)
        for snapshot in (None, *snapshots(catalog)):
            assert rows(lake, snapshot) == rows(catalog, snapshot)
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    with run_query(platform, f"SELECT {names} FROM {TOPIC} ORDER BY 1, 2") as found:
        assert [tuple(row[name] for name in COLUMNS) for row in rows(lake)] == found.fetchall()
    assert len(rows(lake)) == len(values)


def test_clients_find_what_exists(archived: Settings, served: Served, archivist: str) -> None:
    lake = attach(served, archivist, warehouse="any")
    assert lake.list_namespaces() == [("log",)]
    assert lake.list_namespaces("log") == []
    assert lake.load_namespace_properties("log") == {}
    assert ("log", TOPIC) in lake.list_tables("log")
    assert (lake.namespace_exists("log"), lake.namespace_exists("other")) == (True, False)
    assert (lake.table_exists(identifier(TOPIC)), lake.table_exists("log.nothing")) == (True, False)
    for missing in ("log.nothing", "other.page_view", f"log.{TOPIC}.files", "log.\x00"):
        with pytest.raises(NoSuchTableError):
            lake.load_table(missing)
    for asked in (lake.list_tables, lake.load_namespace_properties, lake.list_namespaces):
        with pytest.raises(NoSuchNamespaceError):
            asked("other")


def test_a_list_has_pages_if_the_client_asks_for_them(platform: Settings, served: Served, archivist: str) -> None:
    with open_catalog(platform) as catalog:
        archive_values(platform, [])
        for name in ("a", "b"):
            catalog.register_table(("log", name), catalog.load_table(identifier(TOPIC)).metadata_location)
        try:
            whole = page(served, archivist)
            assert page(served, archivist, pageSize=1) == whole
            assert whole.next_page_token is None
            names: list[str] = []
            token: str | None = ""
            while token is not None:
                found = page(served, archivist, pageToken=token, pageSize=2)
                assert len(found.identifiers) <= 2
                names += [each.name for each in found.identifiers]
                token = found.next_page_token
            assert names == [each.name for each in whole.identifiers] == sorted(names)
            assert {"a", "b", TOPIC} <= {*names}
        finally:
            for name in ("a", "b"):
                catalog.drop_table(("log", name))


def page(served: Served, key: str, **asked: Any) -> ListTablesResponse:
    return ListTablesResponse.model_validate_json(ask(served, key, "/namespaces/log/tables", **asked).text)


def test_nothing_is_written(archived: Settings, served: Served, archivist: str) -> None:
    lake = attach(served, archivist)
    table = lake.load_table(identifier(TOPIC))
    with pytest.raises(NotImplementedError), table.transaction() as change:
        change.set_properties({"owner": "me"})
    with pytest.raises(NotImplementedError):
        lake.drop_table(identifier(TOPIC))
    for method, path in WRITES:
        refused = ask(served, archivist, path, method)
        error = ErrorResponse.model_validate_json(refused.text).error
        assert (refused.status_code, error.code, error.type) == (405, 405, "UnsupportedOperationException"), path
    with open_catalog(archived) as catalog:
        assert catalog.load_table(identifier(TOPIC)).metadata_location == table.metadata_location


def test_only_an_archivist_loads_tables(archived: Settings, served: Served, archivist: str) -> None:
    with pytest.raises(UnauthorizedError, match="NotAuthorizedException: no such key"):
        attach(served, archivist + "0")
    readers, producers = archived.reader_key.get_secret_value(), archived.producer_key.get_secret_value()
    for other in (readers, producers):
        with pytest.raises(ForbiddenError, match=r"ForbiddenException: .* use a key with the role archivist"):
            attach(served, other)
        assert ask(served, other, TABLE).status_code == 403
    assert httpx.get(f"{served.url}/views", headers={"Authorization": f"Bearer {archivist}"}).status_code == 403


def test_the_catalog_gives_no_secret(archived: Settings, served: Served, archivist: str) -> None:
    answers = "".join(ask(served, archivist, path).text for path in ("/config", "/namespaces/log/tables", TABLE))
    secrets = (archived.s3_secret_key, archived.database_password, archived.catalog_password)
    assert [each for each in secrets if each.get_secret_value() in answers] == []
    assert archived.s3_access_key not in answers


def test_a_client_gets_the_snapshots_of_branches_only_if_it_wants(
    archived: Settings, served: Served, archivist: str
) -> None:
    whole, named = (
        TableResponse.model_validate_json(ask(served, archivist, TABLE, **asked).text).metadata
        for asked in ({"snapshots": "all"}, {"snapshots": "refs"})
    )
    assert len(whole.snapshots) == len(OF_TWO_DAYS)
    assert [each.snapshot_id for each in named.snapshots] == [whole.current_snapshot_id]
    assert named.model_copy(update={"snapshots": whole.snapshots}) == whole
    assert ask(served, archivist, TABLE, snapshots="some").status_code == 400
    assert rows(attach(served, archivist, **{"snapshot-loading-mode": "refs"})) == rows(attach(served, archivist))


def test_a_client_that_knows_the_metadata_gets_it_again_only_after_a_commit(
    archived: Settings, served: Served, archivist: str
) -> None:
    tag = ask(served, archivist, TABLE).headers["ETag"]
    unchanged = ask(served, archivist, TABLE, headers={"If-None-Match": tag})
    assert (unchanged.status_code, unchanged.content, unchanged.headers["ETag"]) == (304, b"", tag)
    assert ask(served, archivist, TABLE, headers={"If-None-Match": tag}, snapshots="refs").status_code == 200
    append_value(archived, len(OF_TWO_DAYS), OF_TWO_DAYS[0])
    assert ask(served, archivist, TABLE, headers={"If-None-Match": tag}).status_code == 200


def test_a_catalog_that_was_restored_is_not_served(archived: Settings, served: Served, archivist: str) -> None:
    """Its files may have people who were forgotten since the backup."""
    lake = attach(served, archivist)
    with open_catalog(archived) as catalog:
        backup = catalog.load_table(identifier(TOPIC)).metadata_location
        append_value(archived, len(OF_TWO_DAYS), OF_TWO_DAYS[0])
        catalog.drop_table(identifier(TOPIC))
        catalog.register_table(identifier(TOPIC), backup)
    with pytest.raises(ServiceUnavailableError, match="run `truelog archive adopt`"):
        lake.load_table(identifier(TOPIC))


def test_a_table_that_the_restored_catalog_lacks_is_not_missing(
    archived: Settings, served: Served, archivist: str
) -> None:
    with connect(archived, autocommit=True) as connection:
        an_event_type(connection, load_events()[TOPIC], TOPIC_ID)
    with open_catalog(archived) as catalog:
        table = catalog.load_table(identifier(TOPIC))
        catalog.drop_table(identifier(TOPIC))
        assert ask(served, archivist, TABLE).status_code == 503
        catalog.register_table(identifier(TOPIC), table.metadata_location)
    assert ask(served, archivist, TABLE).status_code == 200


@pytest.fixture
def held(archived: Settings) -> Iterator[None]:
    with connect(archived, autocommit=True) as connection:
        a_view(connection, "page_views", reads=["search"])
        lacks(connection, 1)
        yield
        forget_erasures(connection)


@pytest.mark.usefixtures("held")
def test_nothing_is_served_while_erasures_are_missing(archived: Settings, served: Served, archivist: str) -> None:
    lake = attach(served, archivist)
    with pytest.raises(ServiceUnavailableError, match="the archive is held back"):
        lake.load_table(identifier(TOPIC))
    with connect(archived, autocommit=True) as connection:
        lacks(connection, 0)
    assert len(rows(lake)) == len(OF_TWO_DAYS)


def test_an_erased_person_is_in_no_snapshot_that_is_served(archived: Settings, served: Served, archivist: str) -> None:
    lake = attach(served, archivist)
    assert {row["visitor_id"] for row in rows(lake)} == {"v", None}
    with open_catalog(archived) as catalog:
        eraser = ArchiveEraser(catalog, load_events()[TOPIC], erasures_of(archived, "v", {0: 9}))
        assert eraser.rewrite() == 2
        eraser.expire()
    for snapshot in snapshots(lake):
        assert [(row["visitor_id"], row["erased"]) for row in rows(lake, snapshot)][:2] == [(None, True)] * 2


def test_an_outage_of_the_object_store_is_an_error_of_the_protocol(archived: Settings, archivist: str) -> None:
    with serving(archived, s3_endpoint="http://127.0.0.1:9") as api:
        refused = ask(api, archivist, TABLE)
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert ErrorResponse.model_validate_json(refused.text).error.type == "ServiceUnavailableException"


def test_every_route_that_clients_are_told_of_answers(archived: Settings, served: Served, archivist: str) -> None:
    told = ask(served, archivist, "/config").json()["endpoints"]
    assert len(told) == len(OF_CATALOG) - 1 + 2  # without the configuration, and with HEAD of two
    for each in told:
        method, path = each.split(" ")
        asked = path.removeprefix("/v1/{prefix}").format(namespace="log", table=TOPIC)
        assert ask(served, archivist, asked, method).status_code == 200, each
