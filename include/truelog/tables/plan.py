"""Plan: what a transform's analysed plan says about the transform, read through py4j."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

# KLL compacts with random bits, so a merge of two sketches differs between runs.
_NON_DETERMINISTIC = re.compile(
    r"expressions\.(Current\w+|Now|LocalTimestamp|InputFile\w+|SparkVersion|VariableReference|\w*Python\w*"
    r"|KllSketchMerge\w+)\""
)
# What may differ between runs although Spark calls it deterministic; `_doubt` decides.
_DOUBTFUL = re.compile(
    r"\.(ParseToDate|ParseToTimestamp|VariantGet|AesEncrypt|(Json|Csv|Xml)ToStructs)\""
    r"|\.Cast\"[^{}]*\"dataType\":(\"(date|timestamp)|\{)"
)
_MOMENT = re.compile(r"now|today|tomorrow|yesterday", re.IGNORECASE)  # times for which Spark puts a constant
_DATED = re.compile(r"\s*([+-]?\d{4}|epoch)", re.IGNORECASE)
_TIMES = ("date", "timestamp", "timestamp_ntz")
_ZONED = re.compile(r"(?<!\w)timestamp\b(?!:)")  # in the text of a type; `timestamp:` is the name of a field
_TEXT = re.compile(r"(?<!\w)(string|variant)\b(?!:)")
_TIME_OF_DAY = "a text as a timestamp without a format: a text with a time alone becomes a time of the current day"
_PARSERS = ("ParseToDate", "ParseToTimestamp")
_READERS = ("JsonToStructs", "CsvToStructs", "XmlToStructs")
# Spark numbers attributes, and Python numbers lambda variables, differently in each run.
_NUMBER = re.compile(r"(_\d+)?#\d+L?")


def write_as(spark: SparkSession) -> None:
    """Write plans by the settings of this session from now on, in this thread.

    Spark writes a plan by the settings of the session that made the last frame, and that session may describe nothing.
    """
    spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def analyzed(selected: DataFrame) -> Any:
    return selected._jdf.queryExecution().analyzed()


def optimized(selected: DataFrame) -> Any:
    return selected._jdf.queryExecution().optimizedPlan()


def nodes(plan: Any) -> Iterator[Any]:
    """The nodes of a plan, from the top."""
    yield plan
    for child in items(plan.children()):
        yield from nodes(child)


def has_subquery(plan: Any) -> bool:
    """Whether an expression of the plan has a plan of its own, which `nodes` does not visit."""
    return bool(plan.subqueriesAll().nonEmpty())


def source(frame: DataFrame) -> int:
    """The number of the frame's RDD, which a plan over the frame still names."""
    return int(analyzed(frame).rdd().id())


def scans(selected: DataFrame) -> int:
    """How often a plan reads the frames that it selects from."""
    return sum(node.nodeName() == "LogicalRDD" for node in nodes(analyzed(selected)))


def used_columns(selected: DataFrame) -> list[str]:
    """The columns of a frame that a selection reads, after Spark has taken unnecessary structs apart."""
    return sorted(each.name() for each in items(optimized(selected).references().toSeq()))


def source_columns(selected: DataFrame) -> set[str]:
    """The columns of the frames that a selection reads, after Spark has taken unnecessary structs apart."""
    steps = list(nodes(optimized(selected)))
    names = {number(each): each.name() for step in steps if not step.children().size() for each in items(step.output())}
    read = {number(each) for step in steps for each in items(step.references().toSeq())}
    return {name for column, name in names.items() if column in read}


def literals(plan: Any) -> list[Any]:
    """The values of all literals in a plan, in the order of the plan. Of bytes, Java says only where they are."""
    return list(_literals(json.loads(plan.toJSON())))


@dataclass
class LivePart:
    """The part of a plan that determines its result: a column that a later step drops is not part of it."""

    fields: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))  # field names by `source`
    steps: list[list[str]] = field(default_factory=list)  # the expressions of each step, from the top

    def _visit(self, node: Any, wanted: set[int]) -> None:
        kind, children = node.nodeName(), list(items(node.children()))
        if kind == "LogicalRDD":
            names = {each.name() for each in items(node.output()) if number(each) in wanted}
            self.fields[int(node.rdd().id())] |= names
        elif kind == "Project":
            self._follow(node, [each for each in items(node.projectList()) if number(each) in wanted], set())
        elif kind == "Filter":
            self._follow(node, [node.condition()], wanted)
        elif kind == "Generate":
            self._follow(node, [node.generator()], wanted)
        elif kind in ("Union", "Expand"):
            places = [i for i, each in enumerate(items(node.output())) if number(each) in wanted]
            if kind == "Expand":
                rows = [list(items(row)) for row in items(node.projections())]
                self._follow(node, [row[i] for row in rows for i in places], set())
            for child in children if kind == "Union" else ():
                self._visit(child, {number(child.output().apply(i)) for i in places})
        else:
            for child in children:
                self._visit(child, wanted)

    def _follow(self, node: Any, expressions: list[Any], passed: set[int]) -> None:
        """Record a step's expressions, and visit its child for the columns that they read or that pass unchanged."""
        self.steps.append([node.nodeName(), *sorted(_NUMBER.sub("", each.toString()) for each in expressions)])
        read = {number(each) for expression in expressions for each in items(expression.references().toSeq())}
        self._visit(node.children().apply(0), passed | read)


def unstable(selected: DataFrame, again: DataFrame) -> str:
    """What makes a selection differ between two runs on the same rows, or an empty string.

    `again` is the same selection, made a second time: a constant may be of the moment at which it was made.
    """
    made = analyzed(selected)
    text = made.toJSON()
    if changing := sorted({*_NON_DETERMINISTIC.findall(text), *_doubts(made, text)}):
        return ", ".join(changing)
    if not made.deterministic() or not optimized(selected).deterministic():
        return "a random or per-run value"
    same = _constants(made) == _constants(analyzed(again))
    return "" if same else "a constant that differs whenever it is computed"


def _constants(plan: Any) -> tuple[list[Any], str]:
    """All constants of a plan: values exactly, and bytes as a part of its text."""
    return literals(plan), _NUMBER.sub("", plan.toString())


def _doubts(plan: Any, text: str) -> Iterator[str]:
    """What depends on the moment or on chance although Spark calls it deterministic."""
    if _DOUBTFUL.search(text):  # a search in the JVM takes long
        for node in nodes(plan):
            for each in (found for expression in items(node.expressions()) for found in _computed(expression)):
                yield from filter(None, [_doubt(each)])


def _doubt(each: Any) -> str:
    kind = each.getClass().getSimpleName()
    if kind == "Cast":
        return _doubt_of_cast(each)
    if kind == "AesEncrypt":
        _, _, mode, _, vector, _ = items(each.children())
        fixed = str(_constant(mode)).upper() == "ECB" or _constant(vector)
        return "" if fixed else "`aes_encrypt` without a constant initialization vector, which is random"
    if kind == "VariantGet":
        return _TIME_OF_DAY if _ZONED.search(each.targetType().simpleString()) else ""
    if kind in _READERS and _ZONED.search(each.dataType().simpleString()):
        return "" if each.options().contains("timestampFormat") else f"{_TIME_OF_DAY} (set `timestampFormat`)"
    return ""


def _doubt_of_cast(cast: Any) -> str:
    given, made = cast.child().dataType().simpleString(), cast.dataType().simpleString()
    if given == "string" and made in _TIMES and cast.child().foldable():
        text = str(_constant(cast.child()))
        if _MOMENT.search(text):  # Spark also removes control characters before and after it
            return f"the time {text!r}"
        return "" if made != "timestamp" or text == "None" or _DATED.match(text) else f"{_TIME_OF_DAY}: {text!r}"
    return _TIME_OF_DAY if _ZONED.search(made) and _TEXT.search(given) else ""


def _constant(expression: Any) -> Any:
    """The value of an expression; None if it depends on a column."""
    return expression.eval(None) if expression.foldable() else None


def _computed(expression: Any) -> Iterator[Any]:
    """The nodes of an expression. Spark puts a cast in the place of `to_date` and its relatives later."""
    for each in nodes(expression):
        yield from _computed(each.replacement()) if each.getClass().getSimpleName() in _PARSERS else (each,)


def live_part(selected: DataFrame) -> LivePart:
    plan, part = analyzed(selected), LivePart()
    part._visit(plan, {number(each) for each in items(plan.output())})
    return part


def items(sequence: Any) -> Iterator[Any]:
    for i in range(sequence.size()):
        yield sequence.apply(i)


def number(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _literals(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if str(value.get("class", "")).endswith("expressions.Literal"):
            yield None if value.get("dataType") == "binary" else value.get("value")
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _literals(each)


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """A frame without rows. `createDataFrame([], schema)` takes longer, because it passes the rows through Python."""
    rows = spark.sparkContext._jsc.emptyRDD().rdd()
    return DataFrame(spark._jsparkSession.applySchemaToPythonRDD(rows, schema.json()), spark)
