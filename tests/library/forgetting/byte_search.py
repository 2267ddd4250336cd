"""Searches what the platform stores for bytes: tables, objects, files, and topics other than those of events."""

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
from psycopg import sql

from tests.library.relay.read_topic import records
from truelog.storage import bucket
from truelog.storage.database import Connection
from truelog.support.settings import Settings

_STORES = ("postgresql", "kafka", "s3")  # their own files, which have freed pages and records of events
_SCHEMAS = ("truelog", "state", "stage", "batch", "recon", "replay", "iceberg")


def places_with(settings: Settings, connection: Connection, wanted: Iterable[str], topics: Iterable[str]) -> list[str]:
    """Where any of the texts is, in any of the ways in which the platform writes texts."""
    needles = [form for text in wanted for form in (text.encode(), text.encode().hex().encode())]
    places = (*_tables(connection), *_objects(settings), *_topics(settings, topics), *_files(settings.home))
    return [place for place, content in places if any(each in content for each in needles)]


def _tables(connection: Connection) -> Iterator[tuple[str, bytes]]:
    query = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = ANY(%s) ORDER BY 1, 2"
    for schema, table in connection.execute(query, (list(_SCHEMAS),)).fetchall():
        rows = connection.execute(
            sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier(str(schema), str(table)))
        ).fetchall()
        yield f"{schema}.{table}", "\n".join(str(row) for (row,) in rows).encode()


def _objects(settings: Settings) -> Iterator[tuple[str, bytes]]:
    client = bucket.s3_client(settings)
    for each in bucket.list_objects(client, settings.s3_bucket, ""):
        content = client.get_object(Bucket=settings.s3_bucket, Key=each["Key"])["Body"].read()
        yield each["Key"], content + _decoded(each["Key"], content)


def _decoded(key: str, content: bytes) -> bytes:
    if key.endswith(".parquet"):
        return str(pq.read_table(io.BytesIO(content)).to_pylist()).encode()
    if key.endswith(".gz") or ".gz." in key:
        return gzip.decompress(content)
    return b"".join(_inflated(content)) if key.endswith(".avro") else b""


def _inflated(content: bytes) -> Iterator[bytes]:
    """What any part of the content inflates to: an Avro file has compressed blocks between markers."""
    for start in range(len(content)):
        try:
            found = zlib.decompressobj(-15).decompress(content[start:])
        except zlib.error:
            continue
        if len(found) > 100:
            yield found


def _topics(settings: Settings, topics: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for topic in topics:
        content = [(each.key() or b"", each.value() or b"", each.headers()) for each in records(settings, topic)]
        yield topic, str(content).encode()


def _files(home: Path) -> Iterator[tuple[str, bytes]]:
    """The files of the home, such as logs."""
    for path in sorted(home.rglob("*")):
        name = str(path.relative_to(home))
        if path.is_file() and not name.startswith(_STORES):
            content = path.read_bytes()
            yield name, content + _decoded(name, content)
