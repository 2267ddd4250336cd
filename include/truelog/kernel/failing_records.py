"""Failing records: one Spark job that shows on which records a transform fails.

Spark's optimiser turns most transforms into projections and filters. `TryEval`, which also implements Spark's `try_`
functions, evaluates such a step and gives NULL if the step fails. This module rewrites the plan so that each record
keeps its coordinates and a flag that says whether a step has failed. Other steps, such as `explode`, are not rewritten.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

_COORDINATES = ("topic", "partition", "offset")
# Spark would otherwise evaluate a common part of two expressions before `TryEval`.
_OPTIONS = {"spark.sql.subexpressionElimination.enabled": "false"}


@dataclass(frozen=True)
class _Traced:
    """A rewritten plan, with its attributes for the coordinates and the flag."""

    plan: Any
    coordinates: Sequence[Any]
    failed: Any


def failing_records(rows: DataFrame, most: int) -> list[tuple[str, int, int]] | None:
    """The coordinates of up to `most` records on which a transform's rows fail; None if the plan has other steps."""
    spark = rows.sparkSession
    rewriter = _Rewriter(spark)
    branches = [rewriter.trace(branch) for branch in _branches(rows._jdf.queryExecution().optimizedPlan())]
    found: set[tuple[str, int, int]] = set()
    for branch in branches:
        if branch is None:
            return None
        found.update(tuple(row) for row in rewriter.failed(branch).limit(most).collect())
    return sorted(found)[:most]


def _branches(plan: Any) -> list[Any]:
    if plan.nodeName() != "Union":
        return [plan]
    return [branch for child in _items(plan.children()) for branch in _branches(child)]


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _companion(package: Any, name: str) -> Any:
    """A Scala object."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


class _Rewriter:
    """Builds Spark's expressions and plans through py4j."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.jvm = cast(Any, spark._jvm)
        self.expressions = self.jvm.org.apache.spark.sql.catalyst.expressions
        self.plans = self.jvm.org.apache.spark.sql.catalyst.plans.logical

    def trace(self, node: Any) -> _Traced | None:
        children = _items(node.children())
        if not children:
            return self._leaf(node)
        child = self.trace(children[0]) if len(children) == 1 else None
        if child is None or node.nodeName() not in ("Project", "Filter"):
            return None
        if node.nodeName() == "Filter":
            return self._filter(child, node.condition())
        return self._project(child, _items(node.projectList()))

    def failed(self, traced: _Traced) -> DataFrame:
        """The coordinates of the records that failed, in a session with its own options."""
        filtered = self.plans.Filter(traced.failed, traced.plan)
        plan = self.plans.Project(self._sequence(traced.coordinates), filtered)
        session = self.spark._jsparkSession.cloneSession()
        for name, value in _OPTIONS.items():
            session.conf().set(name, value)
        return DataFrame(_companion(self.jvm.org.apache.spark.sql.classic, "Dataset").ofRows(session, plan), self.spark)

    def _leaf(self, node: Any) -> _Traced | None:
        attributes = {each.name(): each for each in _items(node.output())}
        if not set(_COORDINATES) <= attributes.keys():
            return None
        flag = self._alias(self._literal(False), "failed")
        plan = self.plans.Project(self._sequence([*attributes.values(), flag]), node)
        return _Traced(plan, [attributes[name] for name in _COORDINATES], flag.toAttribute())

    def _filter(self, child: _Traced, condition: Any) -> _Traced:
        """Keeps the records that meet the condition, and the records that failed."""
        step, plan = self._step(child, [condition])
        failed = self.expressions.Or(child.failed, self.expressions.IsNull(step))
        kept = self.expressions.Or(failed, self._field(step, 0))
        return self._flagged(self.plans.Filter(kept, plan), child, failed, _items(child.plan.output()))

    def _project(self, child: _Traced, selected: Sequence[Any]) -> _Traced:
        computed = [each for each in selected if each.nodeName() == "Alias"]
        if not computed:
            return child
        unchanged = [each for each in selected if each.nodeName() != "Alias"]
        step, plan = self._step(child, [each.child() for each in computed])
        fields = [self._alias(self._field(step, i), each.name(), each.exprId()) for i, each in enumerate(computed)]
        failed = self.expressions.Or(child.failed, self.expressions.IsNull(step))
        return self._flagged(plan, child, failed, [*unchanged, *fields])

    def _step(self, child: _Traced, evaluated: Sequence[Any]) -> tuple[Any, Any]:
        """A struct of the values of these expressions, NULL if one fails, and the plan that computes it."""
        named = [part for i, each in enumerate(evaluated) for part in (self._literal(str(i)), each)]
        struct = self.expressions.CreateNamedStruct(self._sequence(named))
        step = self._alias(self.expressions.TryEval(struct), "step")
        return step.toAttribute(), self.plans.Project(self._sequence([*_items(child.plan.output()), step]), child.plan)

    def _flagged(self, plan: Any, child: _Traced, failed: Any, output: Sequence[Any]) -> _Traced:
        flag = self._alias(failed, "failed")
        columns = {each.exprId().id(): each for each in (*child.coordinates, *output)}
        columns.pop(child.failed.exprId().id(), None)
        plan = self.plans.Project(self._sequence([*columns.values(), flag]), plan)
        return _Traced(plan, child.coordinates, flag.toAttribute())

    def _literal(self, value: bool | str) -> Any:
        return _companion(self.expressions, "Literal").apply(value)

    def _field(self, struct: Any, number: int) -> Any:
        return self.expressions.GetStructField(struct, number, _companion(self.jvm.scala, "None"))

    def _alias(self, value: Any, name: str, expression_id: Any = None) -> Any:
        given = expression_id or _companion(self.expressions, "NamedExpression").newExprId()
        nothing = self._sequence([])
        return self.expressions.Alias(value, name, given, nothing, _companion(self.jvm.scala, "None"), nothing)

    def _sequence(self, items: Sequence[Any]) -> Any:
        array = self.jvm.java.util.ArrayList()
        for each in items:
            array.add(each)
        return self.jvm.org.apache.spark.api.python.PythonUtils.toSeq(array)
