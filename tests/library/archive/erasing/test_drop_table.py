"""A table leaves the catalog only after all its objects, whatever fails in between. The bucket and catalog are real."""

import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from truelog.archive.erasing.drop_table import drop_table
from truelog.archive.table import open_catalog
from truelog.batch import base
from truelog.storage import bucket
from truelog.storage.database import Connection
from truelog.support.errors import ArchiveCorrupt, ServiceDown
from truelog.support.settings import Settings

ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})


@pytest.fixture
def name(postgresql: Settings, s3: Settings, connection: Connection) -> Iterator[str]:
    """A table with rows, beside another table with a name that begins with its name."""
    made = f"{base.NAMESPACE}.v{uuid.uuid4().hex[:8]}_v1"
    with open_catalog(s3) as catalog:
        catalog.create_namespace_if_not_exists(base.NAMESPACE)
        for each in (made, f"{made}0"):
            table = catalog.create_table(each, ROWS.schema)
            for _ in range(2):
                table.append(ROWS)
    yield made
    for each in (made, f"{made}0"):
        drop_table(s3, connection, each)


def folder(settings: Settings, table: str) -> str:
    with open_catalog(settings) as catalog:
        return f"{catalog.load_table(table).location()}/"


def is_known(settings: Settings, table: str) -> bool:
    with open_catalog(settings) as catalog:
        return table.partition(".")[2] in {each for _, each in catalog.list_tables(base.NAMESPACE)}


def require_dropped(settings: Settings, name: str, place: str) -> None:
    """The table is gone with all its objects, and its neighbour has all of its own."""
    assert not bucket.object_sizes(settings, place)
    assert not is_known(settings, name)
    with open_catalog(settings) as catalog:
        assert catalog.load_table(f"{name}0").scan().to_arrow().num_rows == 4


def test_a_deletion_that_fails_leaves_the_table_in_the_catalog(
    s3: Settings, connection: Connection, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder(s3, name)
    client = bucket.s3_client(s3)

    def keep_one(params: dict[str, Any], **_: object) -> None:
        params["Delete"]["Objects"].pop()

    def refuse(parsed: dict[str, Any], **_: object) -> None:
        parsed["Errors"] = [{"Message": "access denied"}]

    client.meta.events.register("provide-client-params.s3.DeleteObjects", keep_one)
    client.meta.events.register("after-call.s3.DeleteObjects", refuse)
    with monkeypatch.context() as failing:
        failing.setattr(bucket, "s3_client", lambda _: client)
        before = bucket.object_sizes(s3, place)
        with pytest.raises(ServiceDown, match="did not delete 1 objects, the first because: access denied"):
            drop_table(s3, connection, name)
    assert 0 < len(bucket.object_sizes(s3, place)) < len(before)
    assert folder(s3, name) == place  # it still loads
    for _ in range(2):
        drop_table(s3, connection, name)
        require_dropped(s3, name, place)


def test_a_drop_that_was_killed_before_the_catalogs_entry_is_finished(
    s3: Settings, connection: Connection, name: str
) -> None:
    place = folder(s3, name)
    bucket.delete_objects(bucket.s3_client(s3), s3.s3_bucket, [*bucket.object_sizes(s3, place)])
    assert is_known(s3, name)
    drop_table(s3, connection, name)
    require_dropped(s3, name, place)


def test_files_outside_the_warehouse_are_left(s3: Settings, connection: Connection, name: str) -> None:
    other = s3.model_copy(update={"s3_bucket": "another"})
    with pytest.raises(ArchiveCorrupt, match="Nothing was deleted"):
        drop_table(other, connection, name)
    assert is_known(s3, name)
