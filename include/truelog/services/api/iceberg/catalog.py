"""The catalog: the archive's tables with their newest metadata.

An engine reads the files of a table with S3 keys of its own, because the catalog gives no credentials. PyIceberg is
imported by the first request that needs it: it and its libraries take twice the memory of the API.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, Field

from truelog.control import event_registry
from truelog.erasure import hold
from truelog.services.api.declaration import (
    CATALOG,
    CATALOG_CONFIGURATION,
    CATALOG_NAMESPACE,
    CATALOG_TABLE,
    OF_CATALOG,
)
from truelog.services.api.iceberg.refusal import Missing, NotFound
from truelog.services.api.rows.answer import is_known
from truelog.services.api.rows.reads import HELD_SECONDS
from truelog.storage.database import connect
from truelog.support.errors import CatalogBehind, NotReady, NotSetUp, RequestRefused
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

_LONGEST_PAGE = 1_000
_HEAD = (CATALOG_NAMESPACE, CATALOG_TABLE)  # clients ask with HEAD whether these exist
_PREFIXED = "/v1/{prefix}"  # as the specification names the paths
_CACHING = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}
_Namespace = Annotated[str, Path(max_length=200, examples=["log"])]
_Table = Annotated[str, Path(max_length=200, examples=["page_view"])]

log = logging.getLogger(__name__)


class WarehouseParameter(BaseModel):
    """Clients may send the name of a warehouse. There is only one."""

    warehouse: Annotated[str, Field(description="It changes nothing.", examples=["archive"])] = ""


class PageParameters(BaseModel):
    """A page of a list. Without `pageToken`, an answer has all entries, as the protocol requires."""

    page_token: Annotated[
        str | None,
        Field(
            alias="pageToken",
            description="Empty for the first page, and then `next-page-token` of the page before.",
            examples=["page_view"],
        ),
    ] = None
    page_size: Annotated[
        int, Field(alias="pageSize", ge=1, description="The most entries of a page.", examples=[100])
    ] = _LONGEST_PAGE


class NamespaceParameters(PageParameters):
    """The namespaces of the catalog, or those within another one."""

    parent: Annotated[str, Field(description="A namespace. None contains another one.", examples=["log"])] = ""


class SnapshotParameter(BaseModel):
    """Which snapshots the metadata of a table lists."""

    snapshots: Annotated[
        Literal["all", "refs"],
        Field(description="`refs` lists only the snapshots that a branch or a tag names.", examples=["refs"]),
    ] = "all"


class ArchiveCatalog:
    """Answers the routes of the catalog. They run in threads, because PyIceberg blocks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def configuration(self, asked: Annotated[WarehouseParameter, Query()]) -> Response:
        """Where the files are, and which routes there are. The client adds its S3 keys."""
        # An API key is valid until it is revoked, so there is nothing to refresh.
        defaults = self._settings.open_object_store() | {"token-refresh-enabled": "false"}
        return _json({"defaults": defaults, "overrides": {}, "endpoints": _endpoints()})

    def namespaces(self, asked: Annotated[NamespaceParameters, Query()]) -> Response:
        """The only namespace of the archive."""
        if asked.parent:
            _require_namespace(asked.parent)
        names, following = _page([] if asked.parent else [_namespace()], asked)
        return _json({"namespaces": [[each] for each in names], "next-page-token": following})

    def namespace(self, namespace: _Namespace) -> Response:
        """A namespace, which has no properties."""
        _require_namespace(namespace)
        return _json({"namespace": [namespace], "properties": {}})

    def tables(self, namespace: _Namespace, asked: Annotated[PageParameters, Query()]) -> Response:
        """The names of the tables: one for each archived event type."""
        from truelog.archive.table import open_catalog

        _require_namespace(namespace)
        with _stores_answer(), open_catalog(self._settings) as catalog:
            names, following = _page(_table_names(catalog), asked)
        found = [{"namespace": [namespace], "name": each} for each in names]
        return _json({"identifiers": found, "next-page-token": following})

    def table(
        self, request: Request, namespace: _Namespace, table: _Table, asked: Annotated[SnapshotParameter, Query()]
    ) -> Response:
        """The newest metadata of a table, and where it is stored."""
        if namespace != _namespace():  # Java looks for `log.page_view.snapshots` as a table before it makes it itself
            raise NotFound(Missing.TABLE, f"the archive has no table {table} in {namespace}")
        with _stores_answer():
            with connect(self._settings) as connection:
                hold.require_none_held(connection)
                ids = event_registry.beginnings(connection).ids
            found = self._newest(table, ids)
        location, metadata = found.metadata_location, _with_snapshots(found.metadata, asked.snapshots)
        digest = hashlib.sha256(f"{location} {asked.snapshots}".encode()).hexdigest()[:32]
        headers = _CACHING | {"ETag": (tag := f'W/"{digest}"')}
        if is_known(tag, request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        as_json = msgspec.Raw(metadata.model_dump_json().encode())
        return _json({"metadata-location": location, "metadata": as_json, "config": {}}, headers)

    def _newest(self, table: str, ids: Mapping[str, str]) -> "Table":
        """The table, whose metadata is the newest in the bucket. `ids` are those of the registered topics.

        Raises:
            NotFound: there is no such table.
            CatalogBehind: the database was restored, and names older metadata or lacks the table.
        """
        from pyiceberg.exceptions import NoSuchTableError

        from truelog.archive.catalog_pointer import load_newest
        from truelog.archive.table import identifier, open_catalog

        with open_catalog(self._settings) as catalog:
            if table in ids or table in _table_names(catalog):
                with suppress(NoSuchTableError):
                    return load_newest(catalog, identifier(table), ids.get(table, ""))
        raise NotFound(Missing.TABLE, f"the archive has no table {table}")


@contextmanager
def _stores_answer() -> Iterator[None]:
    """Read the archive in this context.

    Raises:
        RequestRefused: 503, a store does not answer, the API has no keys of the object store, or the database was
            restored and is held back.
    """
    from truelog.storage.outages import OUTAGES

    try:
        yield
    except (CatalogBehind, NotReady) as error:
        raise RequestRefused(503, str(error), retry_after=HELD_SECONDS) from error
    except NotSetUp as error:
        log.warning("the archive cannot be read: %s", error)
        raise RequestRefused(503, "the API has no keys that may read the object store") from error
    except OUTAGES as error:
        log.warning("the archive does not answer: %s", error)
        raise RequestRefused(503, "PostgreSQL or the object store does not answer", retry_after=1) from error


def _endpoints() -> list[str]:
    """The routes as the specification writes them, which tell a client what it need not try."""
    asked = [*OF_CATALOG, *(replace(route, method="HEAD") for route in _HEAD)]
    return [
        f"{each.method} {each.path.replace(CATALOG, _PREFIXED)}" for each in asked if each is not CATALOG_CONFIGURATION
    ]


def _namespace() -> str:
    from truelog.archive.table import NAMESPACE

    return NAMESPACE


def _require_namespace(name: str) -> None:
    if name != _namespace():
        raise NotFound(Missing.NAMESPACE, f"the archive has no namespace {name}; its tables are in {_namespace()}")


def _table_names(catalog: "Catalog") -> list[str]:
    from pyiceberg.exceptions import NoSuchNamespaceError

    try:
        return [name for *_, name in catalog.list_tables(_namespace())]
    except NoSuchNamespaceError:
        return []  # nothing is archived yet


def _page(names: Sequence[str], asked: PageParameters) -> tuple[Sequence[str], str | None]:
    """The names of a page in their order, and the token of the next page. A token is the last name of a page."""
    if asked.page_token is None:
        return sorted(names), None
    rest = sorted(each for each in names if each > asked.page_token)
    page = rest[: min(asked.page_size, _LONGEST_PAGE)]
    return page, page[-1] if len(page) < len(rest) else None


def _with_snapshots(metadata: "TableMetadata", which: Literal["all", "refs"]) -> "TableMetadata":
    if which == "all":
        return metadata
    named = {each.snapshot_id for each in metadata.refs.values()}
    kept = [each for each in metadata.snapshots if each.snapshot_id in named]
    return metadata.model_copy(update={"snapshots": kept})


def _json(value: Any, headers: dict[str, str] = _CACHING) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json", headers=headers)
