"""Meanings: the comments on the relations of a view and on their columns.

A column of a side table, or of what the view presents, that has the name of a column of the view means the same, unless
the view's file says something else.
"""

from collections.abc import Iterator

from psycopg import sql

from truelog.schema.names import COORDINATES
from truelog.tables.compiled_view import CompiledView
from truelog.tables.dedupe.compile import SEEN
from truelog.tables.table import STATUS
from truelog.views.group import CHECKPOINTS, INPUTS
from truelog.views.meaning import Meaning

_ABOUT = {
    INPUTS: "the events of each group, as the fold gets them",
    CHECKPOINTS: "the state of a group after some of its events, from which the fold goes on",
    SEEN: "the ids of recent events, by which copies are found",
    "dropped": "how many events came too late to count",
}
_COLUMNS = {name: f"{name} of the event" for name in COORDINATES} | {
    "event_id": "the event's id",
    STATUS: "whether the row's window is `open`, `complete` or `corrected`",
}


def comments(compiled: CompiledView, name: str, relation: sql.Identifier) -> Iterator[sql.Composed]:
    """The statements that comment a relation, by its name behind the view's name; "" for the view itself.

    A column that a declaration names explicitly must exist.
    """
    sides = {each.side: each.view for each in compiled.tables}
    own = sides[name].columns if name in sides else {}
    given = compiled.view.meanings.get(name, Meaning(_ABOUT.get(name, "")))
    about = given.about if name else compiled.view.about
    known = {**_COLUMNS, **compiled.view.columns}
    if about:
        yield sql.SQL("COMMENT ON VIEW {} IS {}").format(relation, sql.Literal(about))
    target = sql.Literal(relation.as_string(None))
    yield sql.SQL("SELECT truelog.describe({}, {}, {})").format(
        target, _keys_and_values(known), _keys_and_values({**own, **given.columns})
    )


def _keys_and_values(texts: dict[str, str]) -> sql.Composed:
    """The texts as an SQL array of names and meanings."""
    pairs = (sql.Literal(each) for pair in texts.items() for each in pair)
    return sql.SQL("jsonb_object(ARRAY[{}]::text[])").format(sql.SQL(", ").join(pairs))
