"""Checks of a Group's fold, on its analysed plan: it must work within each group, and not depend on arrival.

The stream runs a fold on the groups that a batch touched, and a rebuild runs it on all groups at once. Both give the
same rows if each step keeps groups apart, and if each step that depends on an order states a total order.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame

from truelog.schema.names import COORDINATES
from truelog.support.errors import BadDeclaration
from truelog.tables import plan

_STEPS = {
    "Project",
    "Filter",
    "Generate",
    "Union",
    "Expand",
    "LogicalRDD",
    "SubqueryAlias",
    "Window",
    "Aggregate",
    "Sort",
}
# Functions whose result does not depend on the order of the rows.
_UNORDERED = {"Count", "Sum", "Min", "Max", "BitAndAgg", "BitOrAgg", "BitXorAgg", "CountIf", "BoolAnd", "BoolOr"}
_FLOATS = {"float", "double"}


def require_local(name: str, by: Collection[str], inputs: DataFrame, rows: DataFrame, again: DataFrame) -> None:
    """Require that `rows`, the fold of `inputs`, keeps groups apart and depends on no order but a total one.

    `again` is the fold of the same inputs, made a second time.

    Raises:
        BadDeclaration: names the step.
    """
    analyzed = plan.analyzed(rows)
    if changing := plan.unstable(rows, again):
        raise BadDeclaration(
            f"{name}: the fold uses {changing}, so a rebuild would differ. Use native expressions only."
        )
    if plan.has_subquery(analyzed):
        raise BadDeclaration(f"{name}: the fold uses a subquery, which would read the rows of other groups.")
    for node in plan.nodes(analyzed):
        kind = node.nodeName()
        if kind not in _STEPS:
            raise BadDeclaration(f"{name}: the fold uses {kind}. It may filter, explode, aggregate and use windows.")
        if kind == "LogicalRDD" and node.rdd().id() != plan.source(inputs):
            raise BadDeclaration(f"{name}: the fold reads rows that are not among its inputs.")
        if kind == "Aggregate":
            _require_by(name, by, _kept_below(node, by), plan.items(node.groupingExpressions()))
            _require_unordered(name, _functions(plan.items(node.aggregateExpressions()), "AggregateExpression"))
        if kind == "Window":
            kept = _kept_below(node, by)
            _require_by(name, by, kept, plan.items(node.partitionSpec()))
            _require_order(name, kept, node)
    _require_same_by(name, by, analyzed)


_Kept = dict[int, str]  # columns of a step that are unchanged columns of the inputs, by their numbers


def _kept(node: Any, by: Collection[str]) -> _Kept:
    """The columns of a step that have the values of `by` and of the coordinates in the inputs."""
    match node.nodeName():
        case "LogicalRDD":
            names = {plan.number(each): each.name() for each in plan.items(node.output())}
            return {number: column for number, column in names.items() if column in by or column in COORDINATES}
        case "Project" | "Aggregate" as kind:
            made = node.projectList() if kind == "Project" else node.aggregateExpressions()
            return _selected(plan.items(made), _kept_below(node, by))
        case "Union":
            return _in_each_half(node, by)
        case "Expand":
            return {}
        case "Generate":  # several rows have the coordinates of one input
            return {number: column for number, column in _kept_below(node, by).items() if column in by}
    return _kept_below(node, by)


def _kept_below(node: Any, by: Collection[str]) -> _Kept:
    return _kept(node.children().apply(0), by)


def _selected(expressions: Iterable[Any], below: _Kept) -> _Kept:
    """The kept columns among these expressions, which may rename them."""
    kept = {}
    for each in expressions:
        read = each.child() if each.nodeName() == "Alias" else each
        if read.nodeName() == "AttributeReference" and plan.number(read) in below:
            kept[plan.number(each)] = below[plan.number(read)]
    return kept


def _in_each_half(union: Any, by: Collection[str]) -> _Kept:
    """A union takes columns by their places. It may have two rows with the coordinates of one input."""
    halves = []
    for each in plan.items(union.children()):
        kept = _kept(each, by)
        halves.append([kept.get(plan.number(column)) for column in plan.items(each.output())])
    numbers = [plan.number(each) for each in plan.items(union.output())]
    places = zip(numbers, zip(*halves, strict=True), strict=True)
    return {number: columns[0] for number, columns in places if columns[0] in by and len({*columns}) == 1}


def require_row_wise(name: str, declared: DataFrame, again: DataFrame) -> None:
    """Require that each step in `declared`, a selection from states and inputs, uses one state and one input.

    `again` is the same selection, made a second time.

    Raises:
        BadDeclaration: names what they use.
    """
    analyzed = plan.analyzed(declared)
    if changing := plan.unstable(declared, again):
        raise BadDeclaration(f"{name}: a step uses {changing}, so a rebuild would differ. Use native expressions only.")
    if others := sorted({node.nodeName() for node in plan.nodes(analyzed)} - {"Project", "LogicalRDD"}):
        raise BadDeclaration(f"{name}: a step uses {', '.join(others)}. It may only use its state and its input.")


def _require_same_by(name: str, by: Collection[str], analyzed: Any) -> None:
    """The rows of a group have its values, or they could be in the place of another group's rows."""
    kept = _kept(analyzed, by)
    made = {each.name(): kept.get(plan.number(each)) for each in plan.items(analyzed.output())}
    if changed := [column for column in by if column in made and made[column] != column]:
        raise BadDeclaration(f"{name}: the fold changes {', '.join(changed)}, which every row of a group must have.")


def _require_by(name: str, by: Collection[str], kept: _Kept, expressions: Iterable[Any]) -> None:
    if not _columns(kept, expressions) >= set(by):
        raise BadDeclaration(
            f"{name}: an aggregate or a window of the fold covers several groups. Add the columns of `by`, unchanged."
        )


def _require_order(name: str, kept: _Kept, window: Any) -> None:
    functions = list(_functions(plan.items(window.windowExpressions()), "WindowExpression"))
    stated = [each.child() for each in plan.items(window.orderSpec())]
    is_total = _columns(kept, stated) >= set(COORDINATES)
    if not stated or (not is_total and _covers_ties(window)):
        _require_unordered(name, functions)
        return
    if not is_total:
        raise BadDeclaration(
            f"{name}: a window of the fold has an order that leaves ties. End it with {', '.join(COORDINATES)}. "
            "Use it before a union or an explode, after which several rows have the same coordinates."
        )
    _require_exact(name, functions)


def _covers_ties(window: Any) -> bool:
    """Whether no frame of the window separates rows that are equal in its order."""
    specs = (node.windowSpec() for node in _nodes(plan.items(window.windowExpressions())) if _is_window(node))
    return all(each.frameSpecification().frameType().toString() == "RangeFrame" for each in specs)


def _is_window(node: Any) -> bool:
    return bool(node.nodeName() == "WindowExpression")


def _nodes(expressions: Iterable[Any]) -> Iterator[Any]:
    return (node for expression in expressions for node in plan.nodes(expression))


def _require_unordered(name: str, functions: Iterable[Any]) -> None:
    found = list(functions)
    if ordered := sorted({each.nodeName() for each in found} - _UNORDERED):
        raise BadDeclaration(
            f"{name}: {', '.join(ordered)} in the fold depends on the order of the rows. Use a window with a total "
            f"order."
        )
    _require_exact(name, found)


def _require_exact(name: str, functions: Iterable[Any]) -> None:
    for each in functions:
        if each.nodeName() in ("Sum", "Average") and each.dataType().simpleString() in _FLOATS:
            raise BadDeclaration(f"{name}: the fold adds floats, whose sum depends on their order. Use decimals.")


def _functions(expressions: Iterable[Any], kind: str) -> Iterator[Any]:
    """The functions of the aggregates or window expressions in these expressions."""
    for node in _nodes(expressions):
        if node.nodeName() == kind:
            function = node.windowFunction() if kind == "WindowExpression" else node
            yield function.aggregateFunction() if function.nodeName() == "AggregateExpression" else function


def _columns(kept: _Kept, expressions: Iterable[Any]) -> set[str]:
    """The kept columns among these expressions."""
    return {*_selected(expressions, kept).values()}
