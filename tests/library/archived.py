"""An archive without a broker: records written into tables of their own, where a test says, and a view over them."""

import json
import pickle
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.laws.lab import Lab
from truelog import Max, Sum, View
from truelog.archive.archive_commit import Append, commit
from truelog.archive.archive_table import TIME, ensure, identifier, open_catalog
from truelog.archive.archive_writer import FileWriter, blueprint, load_archived_file
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import merge, table
from truelog.kernel.merge import Excluded, Merge
from truelog.log.positions import Positions
from truelog.support.settings import Settings
from truelog.views.compiled_view import Compiled

MORNING = datetime(2026, 3, 1, tzinfo=UTC)


def _per_url(click: DataFrame) -> DataFrame:
    """It fails on a `search_id` that is no number."""
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


@dataclass
class Archived:
    """Clicks and ticks, and a view that counts them up to where they end."""

    lab: Lab
    compiled: Compiled
    ends: dict[str, dict[int, int]] = field(default_factory=lambda: {"click": {0: 0, 1: 0}, "ticks": {0: 0}})
    ids: dict[str, str] = field(default_factory=lambda: {"click": uuid.uuid4().hex, "ticks": uuid.uuid4().hex})

    @property
    def positions(self) -> Positions:
        return Positions(self.ends, self.ids)

    @property
    def rebuilder(self) -> Rebuilder:
        return Rebuilder(self.lab.context, self.lab.connection, self.compiled)

    def click(self, partition: int, clicks: Sequence[tuple[str, str, int]]) -> None:
        """Archive clicks: URL, `search_id`, and at which second."""
        values = [
            {"url": url, "search_id": spent, "visitor_id": "v", "occurred_at": self._at(second)}
            for url, spent, second in clicks
        ]
        self._archive("click", partition, values)

    def tick(self, second: int) -> None:
        self._archive("ticks", 0, [{"occurred_at": self._at(second), "ends": self.positions.as_json()}])

    def stream(self, excluded: Sequence[tuple[int, int]] = ()) -> None:
        """The view merges all that is archived, but for these clicks."""
        set_aside = [Excluded("click", partition, offset, "planted") for partition, offset in excluded]
        merge.exclude(self.lab.connection, self.compiled, set_aside)
        stands = merge.positions(self.lab.connection, self.compiled)
        begin = (
            stands if stands.offsets else Positions({t: dict.fromkeys(p, 0) for t, p in self.ends.items()}, self.ids)
        )
        staged = self.rebuilder.stage_rows(self.positions)
        self.lab.connection.execute(f'DELETE FROM state."{self.compiled.table}"'.encode())
        merge.apply(self.lab.connection, self.compiled, Merge(begin, self.positions, staged, set_aside))

    def _at(self, second: int) -> str:
        return (MORNING + timedelta(seconds=second)).isoformat()

    def _archive(self, topic: str, partition: int, values: Sequence[dict[str, str]]) -> None:
        settings, begin = self.lab.settings, dict(self.ends[topic])
        self.ends[topic][partition] += len(values)
        offsets = range(begin[partition], self.ends[topic][partition])
        with open_catalog(settings) as catalog:
            made = catalog.load_table(identifier(topic)).metadata
            tables = {topic: blueprint(made)}
            writer: FileWriter = pickle.loads(pickle.dumps(FileWriter(settings, tables, {})))
            files = [
                load_archived_file(b["file"][0].as_py(), tables)
                for b in writer(iter([_batch(topic, partition, offsets, values)]))
            ]
            records = dict.fromkeys(begin, 0) | {partition: len(values)}
            data = tuple(file.data_file for file in files)
            commit(catalog, Append(topic, self.ids[topic], begin, dict(self.ends[topic]), records, data))


def _batch(topic: str, partition: int, offsets: range, values: Sequence[dict[str, str]]) -> pa.RecordBatch:
    n = len(values)
    columns = {
        "topic": [topic] * n,
        "partition": pa.array([partition] * n, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([MORNING + timedelta(hours=3)] * n, TIME),
        "key": [b"k"] * n,
        "value": [json.dumps({"event_id": uuid.uuid4().hex} | each).encode() for each in values],
        "headers": [[]] * n,
    }
    return pa.RecordBatch.from_pydict(columns)


@contextmanager
def archived(lab: Lab, settings: Settings) -> Iterator[Archived]:
    """Nothing yet in it; and nothing of it afterwards."""
    compiled = lab.compiled(f"v{uuid.uuid4().hex[:8]}", PER_URL)
    made = Archived(lab, compiled)
    with open_catalog(settings) as catalog:
        for topic, ends in made.ends.items():
            if catalog.table_exists(identifier(topic)):
                catalog.drop_table(identifier(topic))
            ensure(catalog, lab.types[topic], made.ids[topic], ends)
    table.deploy_table(lab.connection, compiled)
    try:
        yield made
    finally:
        with open_catalog(settings) as catalog:
            for topic in made.ends:
                catalog.drop_table(identifier(topic))
