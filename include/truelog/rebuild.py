"""Rebuild: a view's table at exact positions, computed from the archive through the same code as the stream.

A rebuild is one large micro-batch into an empty table.
"""

from psycopg import sql
from pyspark.sql import SparkSession

from truelog import archive, clock, merge, records, stage, table
from truelog.advance import Advancer
from truelog.compiled import Compiled
from truelog.database import Connection
from truelog.positions import Positions


def rebuild(
    spark: SparkSession,
    connection: Connection,
    advancer: Advancer,
    compiled: Compiled,
    positions: Positions,
    *,
    from_raw: bool,
) -> None:
    """Make `recon.<table>` the view at `positions`; `from_raw` parses the raw bytes again.

    Raises:
        ArchiveBehind: the archive has not reached the positions.
    """
    begin, types = Positions({}, positions.ids), {t: advancer.types[t] for t in compiled.view.topics}
    read = archive.records(spark, advancer.settings, types, begin, positions, from_raw=from_raw)
    archived = records.events(read, types)
    if compiled.view.keep:
        clock.remember(connection, positions.ids[clock.TOPIC], archived[clock.TOPIC])
    kept = records.without(archived, excluded(connection, compiled, positions))
    staged = advancer.staged(compiled, kept)
    with connection.transaction():
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier("recon", compiled.table)))
        table.create(connection, compiled, "recon", compiled.table)
        stage.require_whole(connection, compiled, staged)
        merge.add(connection, compiled, "recon", staged)
        stage.clear(connection, compiled, staged)
        clock.drop_outlived(connection, compiled, "recon", positions)


def excluded(connection: Connection, compiled: Compiled, positions: Positions) -> list[tuple[str, int, int]]:
    """The records that the view's stream had to leave out up to `positions`."""
    rows = connection.execute(
        'SELECT topic, partition, "offset" FROM truelog.exclusion WHERE view = %s AND version = %s',
        (compiled.name, compiled.view.version),
    ).fetchall()
    places = [(str(t), int(str(p)), int(str(o))) for t, p, o in rows]
    return [(t, p, o) for t, p, o in places if o < positions.at(t, p)]
