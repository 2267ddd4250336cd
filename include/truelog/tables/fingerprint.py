"""Fingerprint: a hash of everything in a view's file and in its events that determines the rows of its table.

It covers the plan of the transform, the selected names, the key, the measures, `keep`, `dedupe`, and the referenced
fields of the events with their types. A field that the view does not use changes nothing. The bounds of fields are not
part of a fingerprint, because the log itself says under which declaration a record is judged.

The transform runs twice: on frames with all fields, to find the fields that reach its result, and on frames with only
these fields, whose plan is hashed. A fingerprint begins with the number of its formula.
"""

import hashlib
import json
import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from truelog.support.durations import seconds
from truelog.tables import plan
from truelog.tables.plan import empty_frame
from truelog.views.view import View

# Raise MEANING whenever records decode differently (`schema.decode`), or a measure or its hash is computed differently
# (`measures`). No query plan shows such a change, and an existing table must not mix both meanings.
MEANING = 1

Schemas = Mapping[str, StructType]

_FORMULA = 2
_asking = threading.local()  # `here` while this thread asks for a column that may be missing
# Spark numbers its attributes and lambda variables differently in each process and run.
_NUMBERED = re.compile(r"\w*#(\d+)L?")


@dataclass(frozen=True)
class Referenced:
    """The fields of each topic that determine a view's result, sorted by name, and the result of only these fields."""

    fields: dict[str, StructType]
    selected: DataFrame


def fingerprint(view: View, referenced: Referenced) -> str:
    """The fingerprint of a view."""
    fields = json.dumps([(topic, referenced.fields[topic].jsonValue()) for topic in view.reads])
    return of_parts(*plan_parts(referenced.selected), fields, *declared_parts(view))


def of_parts(*parts: str) -> str:
    """The fingerprint of a table whose rows these texts determine."""
    return f"{_FORMULA}:{_hash([*parts, f'meaning {MEANING}'])}"


def combined(fingerprints: list[str]) -> str:
    """The fingerprint of a view with these fingerprints of its tables."""
    return f"{_FORMULA}:{_hash(fingerprints)}"


def plan_parts(selected: DataFrame) -> Iterator[str]:
    """The plan of a transform or a fold, and the columns that it selects."""
    analyzed = plan.analyzed(selected)
    yield _renumbered(analyzed.toString())
    yield json.dumps(plan.literals(analyzed))  # as they are: renumbering also changes a text such as "item#7"
    yield json.dumps([(each.name, each.dataType.jsonValue()) for each in selected.schema])


def declared_parts(view: View) -> Iterator[str]:
    """What every declaration has and rows depend on."""
    yield repr(view.key)
    yield repr(dict(view.measures))
    yield repr(view.keep and seconds(view.keep))
    if view.horizon is not None:
        yield f"dedupe {view.horizon}"
    if view.batch_only:  # its rows are in other tables, at other positions
        yield "batch only"


def _hash(parts: list[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def find_referenced(
    spark: SparkSession, view: View, frames: Mapping[str, DataFrame], selected: DataFrame
) -> Referenced:
    """The fields that determine the result, given frames with all fields and what the transform selects from them.

    A transform may also name a field that does not reach its result, or ask a frame for its columns. If it therefore
    selects something else from frames without the other fields, then only those fields are left out that it can miss.
    """
    part = plan.live_part(selected)
    live = {topic: part.fields[plan.source(frames[topic])] for topic in view.reads}
    kept = {topic: StructType(sorted(frames[topic].schema, key=lambda field: field.name)) for topic in view.reads}

    def same_of(fields: dict[str, StructType]) -> Referenced | None:
        try:
            with _quietly():
                fewer = _selected(spark, view, fields)
            same = fewer.schema == selected.schema and plan.live_part(fewer).steps == part.steps
        except Exception:  # a transform may raise anything if a field is missing
            return None
        return Referenced(fields, fewer) if same else None

    pruned = {t: StructType([field for field in schema if field.name in live[t]]) for t, schema in kept.items()}
    if found := same_of(pruned):
        return found
    found = Referenced(kept, _selected(spark, view, kept))
    for topic in view.reads:
        for name in sorted(set(frames[topic].schema.fieldNames()) - live[topic]):
            fewer = StructType([field for field in found.fields[topic] if field.name != name])
            found = same_of(found.fields | {topic: fewer}) or found
    return found


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep PySpark from logging that a column is missing: here it is an answer, not an error."""
    PySparkLogger.getLogger("DataFrameQueryContextLogger").addFilter(_is_loud)
    _asking.here = True
    try:
        yield
    finally:
        _asking.here = False


def _is_loud(_: logging.LogRecord) -> bool:
    return not getattr(_asking, "here", False)


def _selected(spark: SparkSession, view: View, fields: Schemas) -> DataFrame:
    return view.contributions(*(empty_frame(spark, fields[topic]) for topic in view.reads))


def _renumbered(text: str) -> str:
    numbers: dict[str, int] = {}
    return _NUMBERED.sub(lambda found: f"#{numbers.setdefault(found[1], len(numbers))}", text)
