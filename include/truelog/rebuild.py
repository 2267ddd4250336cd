"""Rebuild: a view at exact positions, computed from the archive through the same code as the stream.

A rebuild is one large micro-batch into an empty table.
"""

from dataclasses import dataclass

from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

from truelog import archive, clock, merge, records, stage, table
from truelog.advance import Advancer
from truelog.compiled import Compiled
from truelog.database import Connection
from truelog.positions import Positions
from truelog.stage import Staged


@dataclass(frozen=True)
class Rebuilder:
    """Rebuilds one view; `from_raw` parses the archive's raw bytes again."""

    spark: SparkSession
    connection: Connection
    advancer: Advancer
    compiled: Compiled
    from_raw: bool = False

    def rebuild(self, positions: Positions) -> None:
        """Make `recon.<table>` the view at `positions`.

        Raises:
            ArchiveBehind: the archive has not reached the positions.
        """
        staged = self.staged(positions)
        with self.connection.transaction():
            target = sql.Identifier("recon", self.compiled.table)
            self.connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(target))
            table.create(self.connection, self.compiled, "recon", self.compiled.table)
            self.add("recon", staged)
            clock.drop_outlived(self.connection, self.compiled, "recon", positions)

    def staged(self, positions: Positions, only: DataFrame | None = None) -> Staged:
        """The view at `positions`, or its rows of the keys in `only`, waiting in the staging table."""
        types = {topic: self.advancer.types[topic] for topic in self.compiled.view.topics}
        begin, settings = Positions({}, positions.ids), self.advancer.settings
        read = archive.records(self.spark, settings, types, begin, positions, from_raw=self.from_raw)
        events = records.events(read, types)
        if self.compiled.view.keep and clock.TOPIC in positions.ids:
            clock.remember(self.connection, positions.ids[clock.TOPIC], events[clock.TOPIC])
        kept = records.without(events, self._excluded(positions))
        return self.advancer.staged(self.compiled, kept, only)

    def add(self, schema: str, staged: Staged) -> None:
        """Add staged rows to the table in `schema`, within the caller's transaction."""
        stage.require_whole(self.connection, self.compiled, staged)
        merge.add(self.connection, self.compiled, schema, staged)
        stage.clear(self.connection, self.compiled, staged)

    def _excluded(self, positions: Positions) -> list[tuple[str, int, int]]:
        """The records that the view's stream had to leave out up to `positions`."""
        rows = self.connection.execute(
            'SELECT topic, partition, "offset" FROM truelog.exclusion WHERE view = %s AND version = %s',
            (self.compiled.name, self.compiled.view.version),
        ).fetchall()
        places = [(str(t), int(str(p)), int(str(o))) for t, p, o in rows]
        return [(t, p, o) for t, p, o in places if o < positions.at(t, p)]
