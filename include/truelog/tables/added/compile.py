"""Compiles a table to which events are added: checks its transform on frames without rows."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from truelog.measures.columns import ColumnTypes, sql_type
from truelog.measures.measure import require_accepted
from truelog.schema.names import COORDINATES
from truelog.support.errors import BadDeclaration
from truelog.tables import plan
from truelog.tables.compiled_view import Compiling
from truelog.tables.fingerprint import find_referenced, fingerprint
from truelog.tables.plan import empty_frame
from truelog.tables.table import Table
from truelog.views.lateness import CORRECTIONS
from truelog.views.view import View

# A record's contribution must depend on that record alone, so no operator here combines rows.
_ROW_WISE = {"Project", "Filter", "Generate", "Union", "Expand", "LogicalRDD", "SubqueryAlias"}


def compile_added(compiling: Compiling) -> Table:
    """Compile a table whose rows a transform makes.

    Raises:
        BadDeclaration: the transform is not row-wise, is not deterministic, or does not select exactly the key and the
            measures.
    """
    spark, name, view, schemas = compiling.spark, compiling.name, compiling.table, compiling.schemas
    if missing := ", ".join(topic for topic in view.reads if topic not in schemas):
        raise BadDeclaration(f"{name} reads {missing}: no such event type is registered; see `truelog status`.")
    frames = {topic: empty_frame(spark, schemas[topic]) for topic in view.reads}
    selected = view.contributions(*(frames[topic] for topic in view.reads))
    _require_row_wise(name, selected, {plan.source(each) for each in frames.values()})
    require_columns(name, view, selected.schema)
    dtypes = {f.name: f.dataType for f in selected.schema}
    require_accepted(name, view.measures, dtypes)
    _require_age_column(name, view, dtypes)
    _require_window(name, view, dtypes)
    referenced = find_referenced(spark, view, frames, selected)
    _require_deterministic(name, selected, view.contributions(*(frames[topic] for topic in view.reads)))
    columns = {topic: frozenset(schema.fieldNames()) for topic, schema in referenced.fields.items()}
    made_by, scans = fingerprint(view, referenced), plan.scans(selected)
    by_offset = _reads_offsets(view, selected)
    return Table(name, view, dtypes, made_by, columns=columns, scans=scans, reads_offsets=by_offset)


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


def require_columns(name: str, view: View, schema: StructType) -> None:
    """Require that rows have exactly the columns of the key and of the measures, and that the key can be compared."""
    declared, selected = [*view.key, *view.measures], schema.fieldNames()
    if sorted(declared) != sorted(selected):
        raise BadDeclaration(f"{name}: the transform selects {selected}, but the key and the measures are {declared}.")
    for key in view.key:
        if not isinstance(schema[key].dataType, ColumnTypes.KEY):
            raise BadDeclaration(f"{name}.{key}: {schema[key].dataType.simpleString()} cannot be a key; cast it.")


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


def _require_row_wise(name: str, selected: DataFrame, sources: set[int]) -> None:
    analyzed = plan.analyzed(selected)
    nodes = list(plan.nodes(analyzed))
    if any(each.nodeName() == "LogicalRDD" and each.rdd().id() not in sources for each in nodes):
        raise BadDeclaration(f"{name}: the transform adds rows of its own, which each micro-batch would count again.")
    forbidden = sorted({each.nodeName() for each in nodes} - _ROW_WISE)
    if plan.has_subquery(analyzed):
        forbidden.append("a subquery")
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
