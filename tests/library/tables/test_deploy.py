"""A view's table is refused if other code made it, or if it does not exist yet."""

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from tests.beds.lab import Lab, renamed
from tests.builders.views import forget, merged_to
from truelog import Sum, View
from truelog.kernel import merge
from truelog.log import records
from truelog.log.positions import Positions
from truelog.schema.names import TICKS
from truelog.support.errors import CodeChanged, NotMade
from truelog.tables import deploy as table
from truelog.tables.compiled_view import CompiledView
from truelog.tables.compiler import compile_view


def per_browser(page_view: DataFrame) -> DataFrame:
    return page_view.select("browser", F.lit(1).alias("views"), "bytes")


def swapped(page_view: DataFrame) -> DataFrame:
    return page_view.select("browser", F.col("bytes").alias("views"), F.lit(1).alias("bytes"))


VIEW = View(reads=("page_view",), transform=per_browser, key=("browser",), measures={"views": Sum(), "bytes": Sum()})


@pytest.fixture
def compiled(lab: Lab) -> Iterator[CompiledView]:
    made = lab.compiled(f"v{uuid.uuid4().hex[:8]}", VIEW)
    table.deploy_table(lab.connection, made)
    yield made
    forget(lab.connection, made.name)


def test_a_new_field_of_the_event_changes_nothing(lab: Lab, compiled: CompiledView) -> None:
    schemas = {topic: records.schema(each) for topic, each in lab.types.items()}
    schemas["page_view"] = StructType([*schemas["page_view"], StructField("added", LongType())])
    table.deploy_table(lab.connection, compile_view(lab.spark, compiled.name, VIEW, schemas))


def test_a_table_of_other_code_is_refused(lab: Lab, compiled: CompiledView) -> None:
    """Two swapped names make other code."""
    with pytest.raises(CodeChanged, match="its table was made by other code"):
        table.deploy_table(lab.connection, lab.compiled(compiled.name, replace(VIEW, transform=swapped)))
    table.require_same_code(lab.connection, compiled)


def test_a_view_that_stops_reading_the_clock_has_no_position_in_the_ticks(lab: Lab, compiled: CompiledView) -> None:
    recent = {f"{compiled.name}_recent": "SELECT * FROM {view} WHERE {clock} > '2026-01-01'"}
    clocked = lab.compiled(compiled.name, replace(VIEW, present=recent))
    table.deploy_table(lab.connection, clocked)
    topics = clocked.view.topics
    merged_to(lab.connection, compiled.name, Positions({topic: {0: 5} for topic in topics}, {t: t for t in topics}))
    table.deploy_table(lab.connection, clocked)
    assert merge.positions(lab.connection, clocked).offsets == {"page_view": {0: 5}, TICKS: {0: 5}}

    table.deploy_table(lab.connection, compiled)
    assert merge.positions(lab.connection, compiled).offsets == {"page_view": {0: 5}}


def test_a_table_that_does_not_exist_is_refused(lab: Lab, compiled: CompiledView) -> None:
    with pytest.raises(NotMade):
        table.require_same_code(lab.connection, renamed(compiled, "never_made"))
