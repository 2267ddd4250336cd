"""The fingerprints of release 0.1 in a database and in partials are recognised once, and today's formula follows."""

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from tests.beds.lab import Lab
from truelog import Sum, View
from truelog.log import records
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
    yield made
    lab.connection.execute("DELETE FROM truelog.view WHERE view = %s", (made.name,))


def stored(lab: Lab, compiled: CompiledView) -> tuple[object, ...] | None:
    query = "SELECT fingerprint, fingerprint_2 FROM truelog.view WHERE view = %s"
    return lab.connection.execute(query, (compiled.name,)).fetchone()


def as_in_0_1(lab: Lab, compiled: CompiledView) -> None:
    table.deploy_table(lab.connection, compiled)
    lab.connection.execute("UPDATE truelog.view SET fingerprint_2 = NULL WHERE view = %s", (compiled.name,))


def wider(lab: Lab, compiled: CompiledView) -> CompiledView:
    """The same view after its event type got a field."""
    schemas = {topic: records.schema(each) for topic, each in lab.types.items()}
    schemas["page_view"] = StructType([*schemas["page_view"], StructField("added", LongType())])
    return compile_view(lab.spark, compiled.name, compiled.view, schemas)


def test_a_table_of_the_earlier_release_is_stamped_when_its_code_is_the_same(lab: Lab, compiled: CompiledView) -> None:
    as_in_0_1(lab, compiled)
    table.require_same_code(lab.connection, compiled)
    table.deploy_table(lab.connection, compiled)
    assert stored(lab, compiled) == (compiled.former_fingerprint, compiled.fingerprint)
    table.deploy_table(lab.connection, wider(lab, compiled))
    assert stored(lab, compiled) == (compiled.former_fingerprint, compiled.fingerprint)


def test_after_the_stamp_only_the_new_formula_counts(lab: Lab, compiled: CompiledView) -> None:
    """Formula 1 does not see that two names are swapped, so it must not excuse a difference by formula 2."""
    crossed = lab.compiled(compiled.name, replace(VIEW, transform=swapped))
    table.deploy_table(lab.connection, compiled)
    with pytest.raises(CodeChanged):
        table.deploy_table(lab.connection, replace(crossed, former_fingerprint=compiled.former_fingerprint))
    assert stored(lab, compiled) == (compiled.former_fingerprint, compiled.fingerprint)


def test_a_table_of_the_earlier_release_with_other_code_is_refused(lab: Lab, compiled: CompiledView) -> None:
    as_in_0_1(lab, compiled)
    with pytest.raises(CodeChanged, match="its table was made by other code"):
        table.deploy_table(lab.connection, wider(lab, compiled))
    assert stored(lab, compiled) == (compiled.former_fingerprint, None)
    with pytest.raises(NotMade):
        table.require_same_code(lab.connection, replace(compiled, name="never_made"))
