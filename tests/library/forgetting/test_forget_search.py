"""The search on which the tests of erasures rely finds a planted text in each kind of place, and in each form."""

import base64
import gzip
import io
import uuid
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from tests.deadline import deadline
from tests.library.forgetting.byte_search import places_with, tables_with, topics_with
from truelog.storage import bucket
from truelog.storage.database import Connection
from truelog.support.settings import Settings


@pytest.fixture
def text() -> str:
    return f"xanthippe-{uuid.uuid4().hex[:8]}"


def encoded(text: str) -> Iterator[tuple[str, bytes]]:
    """Names of objects, and how each of them has the text."""
    yield "plain.json", text.encode()
    yield "hex.json", text.encode().hex().encode()
    for place in range(3):
        yield f"base64-{place}.json", base64.b64encode(b"." * place + text.encode() + b"...")
    yield "text.gz", gzip.compress(text.encode())
    parquet = io.BytesIO()
    pq.write_table(pa.table({"raw": [text.encode()] * 9}), parquet, compression="zstd")
    yield "rows.parquet", parquet.getvalue()
    deflate = zlib.compressobj(wbits=-15)
    yield "manifest.avro", b"Obj\1" + deflate.compress(text.encode() * 20) + deflate.flush()


def test_objects_and_files_are_searched_in_each_form(platform: Settings, connection: Connection, text: str) -> None:
    client, planted = bucket.s3_client(platform), dict(encoded(text))
    for name, content in planted.items():
        client.put_object(Bucket=platform.s3_bucket, Key=f"planted/{name}", Body=content)
    logs = platform.home / "logs"
    logs.mkdir(exist_ok=True)
    (logs / "planted.log").write_text(f"WARNING {text} is unknown\n")
    found = places_with(platform, connection, [text], ())
    assert found == [*(f"planted/{name}" for name in sorted(planted)), "logs/planted.log"]
    (logs / "planted.log").unlink()


@pytest.mark.parametrize("kind", ["text", "bytea", "jsonb"])
def test_tables_and_statistics_are_searched(connection: Connection, kind: str, text: str) -> None:
    value = f"convert_to('{text}', 'UTF8')" if kind == "bytea" else f"to_jsonb('{text}'::text)"
    value = f"'{text}'" if kind == "text" else value
    try:
        connection.execute(f"CREATE TABLE state.planted AS SELECT {value} AS about".encode())
        assert tables_with(connection, [text]) == ["state.planted"]
        connection.execute("INSERT INTO state.planted SELECT about FROM state.planted")
        connection.execute("ANALYZE state.planted")
        connection.execute("TRUNCATE state.planted")
        assert tables_with(connection, [text]) == ["statistics of state.planted"]
    finally:
        connection.execute("DROP TABLE state.planted")


@pytest.mark.parametrize("part", ["key", "value", "headers"])
def test_all_parts_of_the_records_of_all_topics_are_searched(platform: Settings, part: str, text: str) -> None:
    content: dict[str, Any] = {"headers": [("seen", text.encode())]} if part == "headers" else {part: f"a {text}"}
    assert topics_with(platform, [text]) == set()
    producer = Producer(platform.kafka())
    producer.produce("tweet", **content)
    assert producer.flush(deadline(30)) == 0
    assert topics_with(platform, [text]) == {"tweet"}
