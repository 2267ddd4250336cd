"""Captured: the view of a captured table, from the columns of its event type.

    VIEW = captured("customers", key="id", columns={"name": "the customer's name"})

The relation `current` has exactly the rows of the table, as of the place in the database's log up to which the view has
read. The view itself also keeps rows that are no longer in the table: a snapshot that does not contain a row closes it,
and a truncation closes all rows. The row without a key has the place below which rows are closed.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from truelog.measures.latest import Latest, latest
from truelog.views.meaning import Meaning
from truelog.views.view import View

_OF_ROWS = ("read", "inserted", "updated", "deleted")
_CURRENT = """
SELECT {columns} FROM {{view}} AS v
WHERE v."{key}" IS NOT NULL AND v.place >= coalesce((SELECT c.place FROM {{view}} AS c WHERE c."{key}" IS NULL), '')
"""


def _last(values: Mapping[str, Column | str], is_deleted: Column) -> Column:
    return latest("source_place", deleted=is_deleted, **values)


def captured(event_type: str, *, key: str, columns: Mapping[str, str], owner: str = "") -> View:
    """The view of a table; `columns` has the meaning of each column beside the key, and `owner` is whom to ask."""
    names = (key, *columns)

    def transform(changes: DataFrame) -> DataFrame:
        """One row per changed row, and one without a key per change that closes earlier rows."""
        place: dict[str, Column | str] = {"place": "source_place", "transaction": "source_transaction"}
        values: dict[str, Column | str] = {**{name: name for name in columns}, **place}
        is_deleted = F.col("source_operation") == "deleted"
        rows = changes.where(F.col("source_operation").isin(*_OF_ROWS) & F.col(key).isNotNull()).select(
            key, _last(values, is_deleted).alias("last")
        )
        types = {each.name: each.dataType for each in changes.schema}
        nothing: dict[str, Column | str] = {name: F.lit(None).cast(types[name]) for name in columns}
        closing = changes.where("source_closes").select(
            F.lit(None).cast(types[key]).alias(key), _last({**nothing, **place}, F.lit(False)).alias("last")
        )
        return rows.unionByName(closing)

    return View(
        reads=(event_type,),
        transform=transform,
        key=(key,),
        measures={"last": Latest()},
        present={"current": _CURRENT.format(columns=", ".join(f'v."{name}"' for name in names), key=key)},
        meanings={"current": Meaning("the rows of the captured table, as far as the view has read its changes")},
        columns={key: "the primary key; NULL in the row that closes rows", **columns}
        | {
            "place": "where the row's last change is in the order of all changes of the table",
            "transaction": "the id of the transaction that made the last change",
        },
        owner=owner,
    )
