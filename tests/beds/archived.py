"""An archive without a broker: tables that a test writes records to, and a view of these records.

The streamed rows come from the records' raw bytes, and the rebuilt rows from the archived files.
"""

import json
import pickle
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from psycopg import sql
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from tests.laws.naive_copies import Appended
from truelog import Max, Sum, View
from truelog.archive.catalog_pointer import PREFIX
from truelog.archive.commit import Append, commit
from truelog.archive.schema import TIME
from truelog.archive.table import ensure_table, identifier, open_catalog
from truelog.archive.writer import FileWriter, WriterSettings, blueprint, load_archived_file
from truelog.batch import base
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import clock, merge
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.log import records
from truelog.log.positions import Positions
from truelog.rules.records import read_changes
from truelog.storage import bucket
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import changes
from truelog.tables.patterns import rules
from truelog.tables.patterns.judging import judging_of
from truelog.views.judged import Judged

MORNING = datetime(2026, 3, 1, tzinfo=UTC)
LATER = MORNING + timedelta(hours=3)  # when records reach the log


def _per_url(click: DataFrame) -> DataFrame:
    """A transform that fails on a `search_id` that is not a number."""
    return click.select(
        F.date_trunc("minute", "event_time").alias("minute"),
        "url",
        F.col("search_id").cast("int").alias("spent"),
        F.col("event_time").alias("last"),
    )


PER_URL = View(
    reads=("click",),
    transform=_per_url,
    key=("minute", "url"),
    measures={"spent": Sum(), "last": Max()},
    keep="1 hour",
)


def require_output(connection: Connection, compiled: CompiledView) -> None:
    """Require that the records of the view's output, applied in order, give the rows that readers see."""
    rows: dict[str, str] = {}
    query = "SELECT key, value FROM truelog.outbox WHERE view = %s ORDER BY number"
    for key, value in connection.execute(query, (compiled.name,)).fetchall():
        rows.pop(str(key), None)
        rows |= {} if value is None else {str(key): str(value)}
    assert rows == dict(connection.execute(changes.all_rows(compiled.own)).fetchall())


@dataclass(frozen=True)
class Click(Appended):
    """A click; `second` is after 03:00. An empty id makes it invalid, and transforms fail on an amount of letters."""

    url: str = "a"
    spent: str = "1"


@dataclass
class Archived:
    """Archived clicks and ticks, and a view of them."""

    lab: Lab
    compiled: CompiledView
    ends: dict[str, dict[int, int]]
    ids: dict[str, str]

    appended: int = 3 * 3600  # when the broker appends the next records, in seconds
    raw: list[pa.RecordBatch] = field(default_factory=list)  # the records as Kafka returns them

    @property
    def positions(self) -> Positions:
        return Positions(self.ends, self.ids)

    @property
    def rebuilder(self) -> Rebuilder:
        return Rebuilder(self.lab.context, self.lab.connection, self.compiled)

    def click(self, partition: int, clicks: Sequence[tuple[str, str, int]]) -> None:
        """Archive clicks, each with its URL, `search_id` and second."""
        self._archive("click", [self._batch("click", partition, [self._click(*each) for each in clicks])])

    def click_in_order(self, clicks: Sequence[tuple[int, str, str, int]]) -> None:
        """Archive clicks of several partitions with one commit, each appended a second after the click before it."""
        batches = []
        for partition in self.ends["click"]:
            numbered = [(number, each[1:]) for number, each in enumerate(clicks, 1) if each[0] == partition]
            if numbered:
                batch = self._batch("click", partition, [self._click(*each) for _, each in numbered])
                batches.append(_appended_at(batch, [self.appended + number for number, _ in numbered]))
        self.appended += len(clicks)
        self._archive("click", batches)

    def append(self, partition: int, clicks: Sequence[Click]) -> None:
        """Archive clicks that the broker appended at certain times."""
        self.append_all({partition: clicks})

    def append_all(self, clicks: Mapping[int, Sequence[Click]]) -> None:
        """Archive clicks of several partitions with one commit."""
        batches = []
        for partition, some in clicks.items():
            if some:
                values = [{"event_id": c.event_id} | self._click(c.url, c.spent, c.second) for c in some]
                batch = self._batch("click", partition, values)
                batches.append(_appended_at(batch, [3 * 3600 + c.second for c in some]))
        self._archive("click", batches)

    def record(self, topic: str, values: Sequence[dict[str, str]], partition: int = 0) -> None:
        """Archive events of a topic other than `click`."""
        self._archive(topic, [self._batch(topic, partition, values)])

    def tick(self, second: int, ends: str | None = None) -> None:
        """Archive a tick. With other `ends` than a tick has, the record is not a tick."""
        values = [{"occurred_at": self._at(second), "ends": ends or self.positions.as_json()}]
        self._archive("ticks", [self._batch("ticks", 0, values)])

    def stream(self) -> None:
        """Merge the records that the view lacks, as a stream does: from their raw bytes, and from no archived file."""
        connection, types = self.lab.connection, {topic: self.lab.types[topic] for topic in self.ends}
        start = Positions({t: dict.fromkeys(p, 0) for t, p in self.ends.items()}, self.ids)
        current = merge.positions(connection, self.compiled)
        raw = self.lab.spark.createDataFrame(pa.Table.from_batches(self.raw))
        events = records.events(records.decoded(raw, types), types)
        if self.ends[clock.TOPIC][0]:
            clock.store_ticks(connection, self.ids[clock.TOPIC], events[clock.TOPIC])
        batch = EventRange(events, start, self.positions)
        BatchApplier(self.lab.settings).apply(connection, self.compiled, batch, current if current.offsets else start)

    def require_output(self) -> None:
        require_output(self.lab.connection, self.compiled)

    def _click(self, url: str, spent: str, second: float) -> dict[str, str]:
        return {"url": url, "search_id": spent, "visitor_id": "v", "occurred_at": self._at(second)}

    def _at(self, second: float) -> str:
        return (MORNING + timedelta(seconds=second)).isoformat()

    def _batch(self, topic: str, partition: int, values: Sequence[dict[str, str]]) -> pa.RecordBatch:
        """The next records of a partition."""
        begin = self.ends[topic][partition]
        appended = MORNING + timedelta(seconds=self.appended)
        return _batch(topic, partition, range(begin, begin + len(values)), appended, values)

    def _archive(self, topic: str, batches: Sequence[pa.RecordBatch]) -> None:
        """Archive batches of different partitions with one commit."""
        settings, begin = self.lab.settings, dict(self.ends[topic])
        self.raw += [each.select(["topic", "partition", "offset", "broker_time", "value"]) for each in batches]
        records = dict.fromkeys(begin, 0) | {each["partition"][0].as_py(): each.num_rows for each in batches}
        self.ends[topic] |= {partition: begin[partition] + n for partition, n in records.items()}
        with open_catalog(settings) as catalog:
            metadata = catalog.load_table(identifier(topic)).metadata
            tables = {topic: blueprint(metadata)}
            writer: FileWriter = pickle.loads(
                pickle.dumps(FileWriter(WriterSettings.of(settings), self.lab.types, tables, {}))
            )
            files = [load_archived_file(b["file"][0].as_py(), tables) for each in batches for b in writer(iter([each]))]
            data = tuple(file.data_file for file in files)
            commit(catalog, Append(topic, self.ids[topic], begin, dict(self.ends[topic]), records, data))


def _batch(
    topic: str, partition: int, offsets: range, appended: datetime, values: Sequence[dict[str, str]]
) -> pa.RecordBatch:
    n = len(values)
    columns = {
        "topic": [topic] * n,
        "partition": pa.array([partition] * n, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "broker_time": pa.array([appended] * n, TIME),
        "key": [b"k"] * n,
        "value": [json.dumps({"event_id": uuid.uuid4().hex} | each).encode() for each in values],
        "headers": [[]] * n,
    }
    return pa.RecordBatch.from_pydict(columns)


def _appended_at(batch: pa.RecordBatch, seconds: Sequence[float]) -> pa.RecordBatch:
    """The records, which the broker appended in these seconds after the morning."""
    times = pa.array([MORNING + timedelta(seconds=each) for each in seconds], TIME)
    return batch.set_column(batch.schema.get_field_index("broker_time"), "broker_time", times)


def drop_archive(catalog: Catalog, topic: str) -> None:
    """Drop a topic's table, if there is one, its files and its pointer: `archive adopt` would restore the table."""
    bucket_name = catalog.properties["warehouse"].split("/")[2]
    s3, keys = bucket.client_of(catalog.properties), [f"{PREFIX}{identifier(topic)}.json"]
    if catalog.table_exists(identifier(topic)):
        folder = catalog.load_table(identifier(topic)).location().removeprefix(f"s3://{bucket_name}/")
        catalog.drop_table(identifier(topic))
        keys += [each["Key"] for each in bucket.list_objects(s3, bucket_name, f"{folder}/")]
    for key in keys:
        s3.delete_object(Bucket=bucket_name, Key=key)


def new_archive(lab: Lab, settings: Settings, view: View = PER_URL, partitions: int = 2) -> Archived:
    """An empty archive, which replaces that of an earlier test, and a view of its clicks in these partitions.

    If the view reads further topics, each of them has one partition.
    """
    compiled = lab.compiled_once(f"v{uuid.uuid4().hex[:8]}", view)
    begins = {topic: {0: 0} for topic in (*view.reads, "ticks")} | {"click": dict.fromkeys(range(partitions), 0)}
    archive = Archived(lab, compiled, begins, {topic: uuid.uuid4().hex for topic in begins})
    with open_catalog(settings) as catalog:
        for topic, ends in archive.ends.items():
            drop_archive(catalog, topic)
            ensure_table(catalog, lab.types[topic], archive.ids[topic], ends)
    table.deploy_table(lab.connection, compiled)
    return archive


def drop_base(settings: Settings, compiled: CompiledView) -> None:
    """Drop the table of a view's bases, if there is one."""
    name = f"{base.NAMESPACE}.{compiled.own.name}"
    with open_catalog(settings) as catalog:
        if catalog.table_exists(name):
            catalog.purge_table(name)


def change(ground: Archived, table: str, statement: str) -> None:
    name = sql.Identifier("state", table)
    assert ground.lab.connection.execute(sql.SQL(statement).format(name)).rowcount == 1


def oversized(ground: Archived) -> list[object]:
    query = 'SELECT "group" FROM truelog.oversized_group WHERE view = %s'
    return [group for (group,) in ground.lab.connection.execute(query, (ground.compiled.name,)).fetchall()]


def require_versions_of_all_records(ground: Archived) -> None:
    """Require that the versions of rules, which a process makes record by record, follow from all records."""
    view = ground.compiled.view
    assert isinstance(view, Judged)
    every = read_changes(ground.lab.connection, ground.compiled.name, view)
    kept, again = rules.stored(ground.lab.connection, ground.compiled).book, judging_of(ground.compiled.own).book(every)
    assert kept.versions == again.versions
    assert sorted(each for of_rule in kept.changes.values() for each in of_rule) == sorted(every)
