"""Searches what the platform stores for texts: tables and their statistics, objects, files of the home, and records.

A text is found as UTF-8, as hexadecimal digits and as base64, also within Parquet, Avro and gzip. Kafka's own files are
searched as records. Nothing else is searched: no memory of processes, no files of PostgreSQL, and no value that Spark
has compressed in its temporary files.
"""

import base64
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pyarrow.parquet as pq
from confluent_kafka import KafkaError, Message, TopicPartition
from psycopg import sql

from tests.deadline import deadline
from tests.library.relay.read_topic import records
from truelog.kafka.consumer import open_consumer
from truelog.log import topics as log_topics
from truelog.log.kafka_reader import headers_of
from truelog.storage import bucket
from truelog.storage.database import Connection
from truelog.support.settings import Settings

_APART = ("postgresql/", "kafka/data/", "s3/objects/")  # what the stores themselves write
_SCHEMAS = ("truelog", "state", "stage", "batch", "recon", "replay", "iceberg")
_STATISTICS = """
    SELECT format('statistics of %%s.%%s', schemaname, tablename),
        string_agg(concat_ws(' ', most_common_vals::text, histogram_bounds::text, most_common_elems::text), ' ')
    FROM pg_stats WHERE schemaname = ANY(%s) GROUP BY 1 ORDER BY 1
"""


def forms(wanted: Iterable[str]) -> list[bytes]:
    """The ways in which the platform writes texts."""
    return [form for text in wanted for form in (text.encode(), text.encode().hex().encode(), *_base64(text.encode()))]


def _base64(text: bytes) -> Iterator[bytes]:
    """The digits that only the text decides, for each place that it may have in a group of three bytes."""
    for shift, first in enumerate((0, 2, 3)):
        yield base64.b64encode(bytes(shift) + text)[first : (shift + len(text)) * 8 // 6]


def places_with(settings: Settings, connection: Connection, wanted: Iterable[str], topics: Iterable[str]) -> list[str]:
    """Where any of the texts is: tables, statistics, objects, files of the home, and these topics."""
    places = (*_tables(connection), *_objects(settings), *_topics(settings, topics), *_files(settings.home))
    return _with(places, wanted)


def tables_with(connection: Connection, wanted: Iterable[str]) -> list[str]:
    """The tables and statistics that have any of the texts."""
    return _with(_tables(connection), wanted)


def topics_with(settings: Settings, wanted: Iterable[str]) -> set[str]:
    """The topics, of all, with a record that has any of the texts in its key, value or headers, also if aborted."""
    needles = forms(wanted)
    return {
        str(each.topic())
        for each in _records(settings)
        if any(needle in content for content in _contents(each) for needle in needles)
    }


def _with(places: Iterable[tuple[str, bytes]], wanted: Iterable[str]) -> list[str]:
    needles = forms(wanted)
    return [place for place, content in places if any(each in content for each in needles)]


def _tables(connection: Connection) -> Iterator[tuple[str, bytes]]:
    query = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = ANY(%s) ORDER BY 1, 2"
    for schema, table in connection.execute(query, (list(_SCHEMAS),)).fetchall():
        rows = connection.execute(
            sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier(str(schema), str(table)))
        ).fetchall()
        yield f"{schema}.{table}", "\n".join(str(row) for (row,) in rows).encode()
    for place, values in connection.execute(_STATISTICS, (list(_SCHEMAS),)).fetchall():
        yield str(place), str(values).encode()


def _objects(settings: Settings) -> Iterator[tuple[str, bytes]]:
    client = bucket.s3_client(settings)
    for each in bucket.list_objects(client, settings.s3_bucket, ""):
        with suppress(client.exceptions.NoSuchKey):  # deleted meanwhile
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
        yield topic, b"\n".join(content for each in records(settings, topic) for content in _contents(each))


def _records(settings: Settings) -> Iterator[Message]:
    """All records of all topics, also those of aborted transactions, and of Kafka's own topics."""
    names = log_topics.existing_topics(log_topics.client(settings))
    begins = log_topics.earliest_offsets(settings, names)
    unread = set(begins.partitions())
    config = {**settings.kafka(), "group.id": "truelog-search", "enable.auto.commit": False}
    config |= {"isolation.level": "read_uncommitted", "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    with closing(open_consumer(config)) as consumer:
        consumer.assign([TopicPartition(*each, begins.at(*each)) for each in unread])
        while unread:
            found = consumer.poll(deadline(15))
            assert found is not None, f"Kafka does not return the records of {unread}"
            if error := found.error():
                assert error.code() == KafkaError._PARTITION_EOF, error
                unread.discard((str(found.topic()), found.partition() or 0))
            else:
                yield found


def _contents(message: Message) -> Iterator[bytes]:
    for content in (message.key(), message.value(), str(headers_of(message))):
        yield content.encode() if isinstance(content, str) else content or b""


def _files(home: Path) -> Iterator[tuple[str, bytes]]:
    """The files of the home, such as logs, also those of the stores."""
    for path in sorted(home.rglob("*")):
        name = str(path.relative_to(home))
        with suppress(FileNotFoundError):  # deleted meanwhile
            if path.is_file() and not name.startswith(_APART):
                content = path.read_bytes()
                yield name, content + _decoded(name, content)
