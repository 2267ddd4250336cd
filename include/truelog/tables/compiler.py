"""Compiles views: checks a view against the schemas of its events, and derives its columns and its fingerprint."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, IntegerType, StringType, StructType

from truelog.measures.columns import ColumnTypes, sql_type
from truelog.measures.measure import require_accepted
from truelog.schema.names import COORDINATES
from truelog.support.errors import BadDeclaration
from truelog.tables import plan
from truelog.tables.compiled_view import CompiledView
from truelog.tables.fingerprint import (
    combined,
    find_referenced,
    fingerprint,
    joined_fingerprint,
    judged_fingerprint,
)
from truelog.tables.fold.compile import compile_fold
from truelog.tables.join.compile import Joined, matched, text_bytes, type_of
from truelog.tables.patterns import matching
from truelog.tables.plan import empty_frame
from truelog.tables.searches import searching
from truelog.tables.side_tables import relation_names, side_tables
from truelog.tables.table import STATUS, Table
from truelog.views.group import CHECKPOINTS, INPUTS, Group
from truelog.views.join import Join, Match
from truelog.views.judged import Judged
from truelog.views.lateness import CORRECTIONS
from truelog.views.patterns import Patterns
from truelog.views.placeholders import unknown
from truelog.views.searches import Searches
from truelog.views.view import View

# A record's contribution must depend on that record alone, so no operator here combines rows.
_ROW_WISE = {"Project", "Filter", "Generate", "Union", "Expand", "LocalRelation", "LogicalRDD", "SubqueryAlias"}
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_NAME_LENGTH = 63  # PostgreSQL silently truncates longer names


def compile_view(spark: SparkSession, name: str, view: View, schemas: Mapping[str, StructType]) -> CompiledView:
    """Check a view and its side tables against the schemas of its events, and derive its columns and its fingerprint.

    Raises:
        BadDeclaration: the transform is not row-wise, is not deterministic, or does not select exactly the key and the
            measures; or a table column would have two sources.
    """
    sides = _compile_sides(spark, name, view, schemas)
    if isinstance(view, Judged):
        own = _compile_judged(name, view, sides)
    elif isinstance(view, Group):
        own = _compile_folded(spark, name, view, view, sides)
    elif isinstance(view, Join):
        own = replace(_compile_counts(name, view, view.counts, sides), text_bytes=text_bytes(view))
    else:
        own = _compile_table(spark, name, view, schemas)
    if sides:
        own = replace(own, fingerprint=combined([each.fingerprint for each in (own, *sides)]))
    compiled = CompiledView((own, *sides))
    _require_names(compiled)
    for each in compiled.tables:
        _require_indexes(each)
    return compiled


def _compile_sides(spark: SparkSession, name: str, view: View, schemas: Mapping[str, StructType]) -> tuple[Table, ...]:
    """The side tables, in an order in which each follows only from those before it."""
    totals = view.totals if isinstance(view, Join) else {}
    sides: list[Table] = []
    for side, declared in side_tables(view).items():
        if side in totals:
            compiled = _compile_counts(name, declared, totals[side].counts, sides)
        elif side == CHECKPOINTS and isinstance(view, Group):
            compiled = _compile_folded(spark, name, view, declared, sides)
        else:
            compiled = _compile_table(spark, name, declared, schemas)
        if isinstance(view, Join):
            compiled = replace(compiled, text_bytes=text_bytes(view), matched=matched(view, side))
        sides.append(replace(compiled, side=side))
    return tuple(sides)


def _compile_counts(name: str, view: View, counts: Mapping[str, Match], earlier: Sequence[Table]) -> Table:
    """A table of counts, whose key columns have the types of the columns that they come from."""
    known = {each.side: each for each in earlier}
    used = {match.table(name) for match in counts.values() for name in match.tables}
    if missing := sorted(used - known.keys()):
        raise BadDeclaration(f"{name}: a match uses {', '.join(missing)}, but the tables before it are {[*known]}.")
    joined = Joined(counts, {table: known[table] for table in known if table in used})
    keys = [{k: type_of(match.key[k], match, joined.tables) for k in view.key} for match in counts.values()]
    if any(each != keys[0] for each in keys):
        raise BadDeclaration(f"{name}: the matches disagree about the types of the key columns {view.key}.")
    for match in counts.values():
        _require_types(name, match, joined)
    dtypes = keys[0] | dict.fromkeys(counts, IntegerType())
    compiled = Table(name, view, dtypes, joined_fingerprint(view, counts), scans=0, derivation=joined)
    _require_unique_columns(compiled)
    return compiled


def _require_types(name: str, match: Match, joined: Joined) -> None:
    for one, other in match.on:
        if type_of(one, match, joined.tables) != type_of(other, match, joined.tables):
            raise BadDeclaration(f"{name}: {one} and {other} have different types.")
    for column, _, _ in match.where:
        if not isinstance(type_of(column, match, joined.tables), ColumnTypes.WHOLE):
            raise BadDeclaration(f"{name}: {column} is compared with a whole number, but it is not a whole number.")


def _compile_folded(spark: SparkSession, name: str, group: Group, table: View, sides: Sequence[Table]) -> Table:
    """A table with rows that follow from the inputs of a Group: its own table, or its checkpoints."""
    [inputs] = (each for each in sides if each.side == INPUTS)
    folded = compile_fold(spark, name, group, table, inputs)
    _require_columns(name, table, folded.schema)
    dtypes = {field.name: field.dataType for field in folded.schema}
    require_accepted(name, table.measures, dtypes)
    compiled = Table(name, table, dtypes, folded.fingerprint, scans=0, derivation=folded.fold)
    if _texts(compiled) > _texts(inputs):
        raise BadDeclaration(
            f"{name}: the key has {_texts(compiled)} text columns, so a long text of {group.by} is shorter than in "
            f"the inputs. Move a text to the values."
        )
    _require_unique_columns(compiled)
    return compiled


def _compile_judged(name: str, view: Judged, sides: Sequence[Table]) -> Table:
    """The table of a view whose rows follow from its inputs and from rules."""
    [inputs], [rules] = ([each for each in sides if each.side == side] for side in (INPUTS, view.rules_side))
    made_by = judged_fingerprint(view, view.named, view.language)
    if isinstance(view, Patterns):
        rows, derivation = matching.ROWS, matching.compile_matching(view, inputs, rules)
    elif isinstance(view, Searches):
        rows, derivation = searching.ROWS, searching.compile_searching(view, inputs, rules)
    else:
        raise BadDeclaration(f"{name}: nothing makes the rows of {type(view).__name__}")
    dtypes = {each.name: each.dataType for each in from_arrow_schema(rows)}
    return Table(name, view, dtypes, made_by, scans=0, derivation=derivation)


def _texts(table: Table) -> int:
    return sum(isinstance(table.dtypes[k], StringType) for k in table.view.key)


def _compile_table(spark: SparkSession, name: str, view: View, schemas: Mapping[str, StructType]) -> Table:
    if missing := ", ".join(topic for topic in view.reads if topic not in schemas):
        raise BadDeclaration(f"{name} reads {missing}: no such event type is registered; see `truelog status`.")
    frames = {topic: empty_frame(spark, schemas[topic]) for topic in view.reads}
    selected = view.contributions(*(frames[topic] for topic in view.reads))
    _require_row_wise(name, selected)
    _require_columns(name, view, selected.schema)
    dtypes = {f.name: f.dataType for f in selected.schema}
    require_accepted(name, view.measures, dtypes)
    _require_age_column(name, view, dtypes)
    _require_window(name, view, dtypes)
    referenced = find_referenced(spark, view, frames, selected)
    _require_deterministic(name, selected, view.contributions(*(frames[topic] for topic in view.reads)))
    columns = {topic: frozenset(schema.fieldNames()) for topic, schema in referenced.fields.items()}
    made_by, scans = fingerprint(view, referenced), plan.scans(selected)
    by_offset = _reads_offsets(view, selected)
    compiled = Table(name, view, dtypes, made_by, columns=columns, scans=scans, reads_offsets=by_offset)
    _require_unique_columns(compiled)
    return compiled


def _reads_offsets(view: View, selected: DataFrame) -> bool:
    """Whether a row depends on the offset of an event, which means something only within a partition.

    A measure that keeps one event has the offset as the last part of its order, where it decides only between ties.
    """
    parts = (
        selected[name].dropFields(*COORDINATES).alias(name)
        if name in view.measures and view.measures[name].keeps_one_event
        else selected[name]
        for name in selected.columns
    )
    return "offset" in plan.source_columns(selected.select(*parts))


def _require_columns(name: str, view: View, schema: StructType) -> None:
    declared, selected = [*view.key, *view.measures], schema.fieldNames()
    if sorted(declared) != sorted(selected):
        raise BadDeclaration(f"{name}: the transform selects {selected}, but the key and the measures are {declared}.")
    for key in view.key:
        if not isinstance(schema[key].dataType, ColumnTypes.KEY):
            raise BadDeclaration(f"{name}.{key}: {schema[key].dataType.simpleString()} cannot be a key; cast it.")


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


def _require_age_column(name: str, view: View, dtypes: Mapping[str, DataType]) -> None:
    if view.keep and "timestamptz" not in (sql_type(dtypes[k]) for k in view.key):
        raise BadDeclaration(
            f"{name}: keep={view.keep!r} needs a timestamp among the key columns, for the age of a row."
        )


def _require_window(name: str, view: View, dtypes: Mapping[str, DataType]) -> None:
    window = view.window
    if window is None:
        return
    if window.start not in view.key or sql_type(dtypes[window.start]) != "timestamptz":
        raise BadDeclaration(f"{name}: the window begins at {window.start!r}, which is not a timestamp of the key.")
    corrections = view.measures.get(CORRECTIONS)
    if corrections is None or not corrections.is_additive:
        raise BadDeclaration(
            f"{name}: a view with a window needs the measure {CORRECTIONS!r}: Sum(), for which the transform selects "
            f"the window's `corrections(start)`."
        )


def _require_row_wise(name: str, selected: DataFrame) -> None:
    forbidden = sorted({n.nodeName() for n in plan.nodes(plan.analyzed(selected))} - _ROW_WISE)
    if forbidden:
        raise BadDeclaration(
            f"{name}: the transform uses {', '.join(forbidden)}. It may select, filter, explode and union: the "
            f"contribution of a record must not depend on other records, or the micro-batches would change the result."
        )


def _require_deterministic(name: str, selected: DataFrame, again: DataFrame) -> None:
    if changing := plan.unstable(selected, again):
        raise BadDeclaration(
            f"{name}: the transform uses {changing}, so a rebuild would differ. Use only native expressions over the "
            f"event's own columns."
        )
