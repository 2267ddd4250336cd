"""The tables that a version of a view owns, for work that does not load the view's file."""

from collections.abc import Mapping, Sequence

from psycopg import sql

from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.views import catalogue
from truelog.views.catalogue import table_name


def _side_names(connection: Connection, view: str, version: int) -> list[str]:
    """The names of the version's side tables."""
    rows = connection.execute(
        "SELECT unnest(sides) FROM truelog.view WHERE (view, version) = (%s, %s)", (view, version)
    ).fetchall()
    return [side for (side,) in rows]


def diff_tables(connection: Connection, view: str, version: int) -> dict[str, str]:
    """The names of the version's tables of differences, by the name of the side table; "" for the view's own."""
    return {side: f"{table_name(view, version, side)}_diff" for side in ("", *_side_names(connection, view, version))}


def tables_of(connection: Connection, view: str, version: int) -> list[str]:
    """The names of the version's table and of its side tables, as they are in PostgreSQL."""
    return [table_name(view, version, side) for side in ("", *_side_names(connection, view, version))]


def lock_answer(connection: Connection, tables: Sequence[str]) -> None:
    """Block other writers of the same batch answer until this transaction ends; readers continue."""
    names = sql.SQL(", ").join(sql.Identifier("batch", each) for each in tables)
    connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(names))


def empty_answer(connection: Connection, tables: Sequence[str]) -> None:
    """Delete the answer's rows. TRUNCATE would block readers and remove rows that older snapshots still read."""
    for each in tables:
        connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier("batch", each)))


def deployed_versions(connection: Connection) -> dict[str, int]:
    """The version of each view that readers see. A view without a table is left out."""
    return dict(connection.execute("SELECT view, version FROM truelog.deployed").fetchall())


def batch_only_views(connection: Connection) -> set[str]:
    """The views whose deployed version no stream runs."""
    return {view for (view,) in connection.execute("SELECT view FROM truelog.batch_only").fetchall()}


def views_in_order(connection: Connection, topics: Mapping[str, str]) -> dict[str, list[str]]:
    """The views that depend on the order of a key's events in each topic. `topics` has their names by their ids."""
    rows = connection.execute(
        "SELECT topic_id, array_agg(DISTINCT view) FROM truelog.view_position JOIN truelog.view USING (view, version) "
        "WHERE topic_id = ANY(%s) AND needs_order IS NOT FALSE GROUP BY topic_id",
        (list(topics),),
    ).fetchall()
    return {topics[topic_id]: views for topic_id, views in rows}


def streamed_views(settings: Settings, connection: Connection) -> list[str]:
    """The views in the catalogue, without the batch-only views. They have a lag."""
    batch_only = batch_only_views(connection)
    return [view for view in catalogue.view_names(settings.views_folder) if view not in batch_only]
