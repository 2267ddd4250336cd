"""Columns of a view: their types, and the fields of events from which they come, read from the view's own plan.

A plan names the columns of each step exactly. So nothing is guessed from names, and what a plan does not say is left
out: the single columns of a table whose rows follow from other tables of the view, such as those of a Group or a Join.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from truelog.log import records
from truelog.schema.event import EventTypes
from truelog.tables import plan
from truelog.tables.compiled_view import CompiledView
from truelog.tables.plan import empty_frame
from truelog.tables.table import STATUS, Table

EventField = tuple[str, str]  # the event type and its field
_Read = set[tuple[int, str]]  # by the number of a frame (`plan.source`)
_Origins = Mapping[int, _Read]  # by the number of an attribute


@dataclass(frozen=True)
class ColumnOrigins:
    """The fields from which a view's columns come.

    columns: by column. A column that no field decides, such as a count, is left out.
    filters: the fields that decide which events count.
    whole: the fields on which the rows depend in another way. If there are any, nothing is known of single columns.
    """

    columns: Mapping[str, set[EventField]] = field(default_factory=dict)
    filters: set[EventField] = field(default_factory=set)
    whole: set[EventField] = field(default_factory=set)


def fields_of(compiled: CompiledView) -> list[dict[str, str]]:
    """The names of the columns that readers see, with types of PostgreSQL and meanings as far as they are known."""
    table, stored = compiled.own, compiled.own.stored_columns
    fields = []
    for name, expression in table.shown_values.items():
        known = {"name": name}
        if name in stored and expression == f'"{name}"':
            known["type"] = stored[name].partition(" COLLATE ")[0]
        if about := table.view.columns.get(name):
            known["description"] = about
        fields.append(known)
    return fields + ([{"name": STATUS, "type": "text"}] if table.view.window is not None else [])


def origins(spark: SparkSession, compiled: CompiledView, types: EventTypes) -> ColumnOrigins:
    """The fields from which the view's columns come, given the types of all events that the view reads."""
    table = compiled.own
    if table.follows_from:
        return ColumnOrigins(whole={(topic, name) for topic, names in compiled.columns.items() for name in names})
    frames = {topic: empty_frame(spark, records.schema(types[topic])) for topic in table.view.reads}
    topics = {plan.source(frame): topic for topic, frame in frames.items()}
    shown = _shown(table, table.transformed(frames))
    walked = _Walk()
    found = walked.visit(top := plan.optimized(shown))

    def named(read: _Read) -> set[EventField]:
        return {(topics[number], name) for number, name in read}

    by_name = {each.name(): named(found.get(plan.number(each), set())) for each in plan.items(top.output())}
    return ColumnOrigins({name: read for name, read in by_name.items() if read}, named(walked.filters))


def _shown(table: Table, selected: DataFrame) -> DataFrame:
    """The selected rows with a column for each column that readers see."""
    keys = [selected[key].alias(key) for key in table.view.key]
    return selected.select(
        *keys, *(column for name in table.view.measures for column in _measured(table, selected, name))
    )


def _measured(table: Table, selected: DataFrame, name: str) -> Iterator[Column]:
    """What the transform selects for each shown column of a measure: a field of a struct, or the whole value."""
    dtype = table.dtypes[name]
    for shown in table.view.measures[name].shown(name, dtype):
        is_field = isinstance(dtype, StructType) and shown in dtype.names
        yield (selected[name][shown] if is_field else selected[name]).alias(shown)


class _Walk:
    """Follows the attributes of a plan down to the columns of the frames at its end."""

    def __init__(self) -> None:
        self.filters: _Read = set()

    def visit(self, node: Any) -> _Origins:
        """The columns from which each attribute of the node's output comes."""
        children = list(plan.items(node.children()))
        if node.nodeName() == "LogicalRDD":
            source = int(node.rdd().id())
            return {plan.number(each): {(source, each.name())} for each in plan.items(node.output())}
        below = [self.visit(child) for child in children]
        if node.nodeName() == "Union":
            return self._united(node, children, below)
        known = {number: read for each in below for number, read in each.items()}
        return known | {plan.number(made): self._read(parts, known) for made, parts in self._made(node, known)}

    def _made(self, node: Any, known: _Origins) -> Iterator[tuple[Any, list[Any]]]:
        """The attributes that a step adds, and the expressions that make each of them."""
        kind = node.nodeName()
        if kind == "Project":
            yield from ((each, [each]) for each in plan.items(node.projectList()))
        elif kind == "Filter":
            self.filters |= self._read([node.condition()], known)
        elif kind == "Generate":
            yield from ((each, [node.generator()]) for each in plan.items(node.generatorOutput()))
        elif kind == "Expand":
            rows = [list(plan.items(row)) for row in plan.items(node.projections())]
            yield from ((each, [row[i] for row in rows]) for i, each in enumerate(plan.items(node.output())))

    @staticmethod
    def _read(expressions: list[Any], known: _Origins) -> _Read:
        """The columns that expressions read."""
        references = (each for one in expressions for each in plan.items(one.references().toSeq()))
        return {column for each in references for column in known.get(plan.number(each), ())}

    @staticmethod
    def _united(node: Any, children: list[Any], below: list[_Origins]) -> _Origins:
        """An attribute of a union comes from the attributes at the same place in each part."""
        united: dict[int, _Read] = defaultdict(set)
        for child, known in zip(children, below, strict=True):
            for made, each in zip(plan.items(node.output()), plan.items(child.output()), strict=True):
                united[plan.number(made)] |= known.get(plan.number(each), set())
        return united
