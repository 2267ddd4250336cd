"""Compiles views: checks a view against the schemas of its events, and derives its columns and its fingerprint."""

import re
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from truelog.support.errors import BadDeclaration
from truelog.tables import kinds, plan
from truelog.tables.compiled_view import CompiledView, Compiling
from truelog.tables.fingerprint import combined
from truelog.tables.side_tables import relation_names, side_tables
from truelog.tables.table import STATUS, Table
from truelog.views.placeholders import unknown
from truelog.views.view import View

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_NAME_LENGTH = 63  # PostgreSQL silently truncates longer names


def compile_view(spark: SparkSession, name: str, view: View, schemas: Mapping[str, StructType]) -> CompiledView:
    """Check a view and its side tables against the schemas of its events, and derive its columns and its fingerprint.

    The kind of the view compiles each of its tables, in an order in which a table follows only from those before it.

    Raises:
        BadDeclaration: a declaration has an error that its kind finds, or a table column would have two sources.
    """
    plan.write_as(spark)
    kind, compiled = kinds.declared_kind(view), tuple[Table, ...]()
    for side, declared in {**side_tables(view), "": view}.items():
        table = kind.compile(Compiling(spark, name, view, schemas, declared, side, compiled))
        _require_unique_columns(table)
        compiled = (*compiled, replace(table, side=side))
    *sides, own = compiled
    if sides:
        own = replace(own, fingerprint=combined([each.fingerprint for each in (own, *sides)]))
    found = CompiledView((own, *sides))
    _require_names(found)
    for each in found.tables:
        _require_indexes(each)
    return found


def _require_indexes(table: Table) -> None:
    for declared in table.view.indexes:
        if isinstance(declared, str):
            wrong = unknown(declared, table.shown)
        else:
            wrong = set(declared) - table.stored_columns.keys()
        if wrong:
            raise BadDeclaration(f"{table.owner}: an index names {', '.join(sorted(wrong))}: no such column.")
        if not isinstance(declared, str) and (long := [each for each in declared if _may_be_long(table, each)]):
            raise BadDeclaration(
                f"{table.owner}: no index of PostgreSQL can contain every value of {', '.join(long)}. Move it to the "
                f"key, whose texts are shortened, or leave it out of the index."
            )


def _may_be_long(table: Table, column: str) -> bool:
    """Whether an index on a stored column could refuse a value, and with it the batch."""
    is_short = column in table.key_columns or column in table.matched
    stored = table.stored_columns[column]
    return not is_short and (stored.startswith(("text", "bytea")) or "[]" in stored)


def _require_unique_columns(table: Table) -> None:
    """A measure may make columns with names other than its own, but columns with equal names would hide each other."""
    for declared in ("names", "shown"):
        sources = dict.fromkeys(table.view.key, "the key")
        if table.view.window is not None:
            sources[STATUS] = "the window"
        for name, measure in table.view.measures.items():
            source = f"the measure {name!r}"
            for column in getattr(measure, declared)(name, table.dtypes[name]):
                if column in sources:
                    conflict = _conflict(sources[column], source, column)
                    raise BadDeclaration(f"{table.owner}: {conflict} in the transform.")
                sources[column] = source


def _conflict(first: str, second: str, column: str) -> str:
    if first == second:
        return f"{first} makes the column {column!r} for its own order; rename the selected column"
    return f"{first} and {second} both make a column {column!r}; rename one of them"


def _require_names(compiled: CompiledView) -> None:
    """Table and column names must be plain, because they appear in the SQL of two engines."""
    readable = relation_names(compiled.view)
    if len(set(readable)) < len(readable):
        raise BadDeclaration(f"{compiled.name}: `present` names a side table; the side tables are {readable}.")
    if unknown := sorted(compiled.view.meanings.keys() - {*readable}):
        raise BadDeclaration(
            f"{compiled.name}: `meanings` names {', '.join(unknown)}, which the view does not have; its relations are: "
            f"{', '.join(sorted(readable)) or 'none'}."
        )
    relations = [*(f"{each.name}_streamed" for each in compiled.tables), *(f"{compiled.name}_{r}" for r in readable)]
    columns = [column for each in compiled.tables for column in (*each.stored_columns, *each.shown)]
    for name in (*relations, *columns):
        if not _NAME.fullmatch(name) or len(name) > _NAME_LENGTH:
            raise BadDeclaration(
                f"{compiled.name}: {name!r} cannot be the name of a table or a column; "
                f"use at most {_NAME_LENGTH} characters of a-z, 0-9 and _, beginning with a letter."
            )
