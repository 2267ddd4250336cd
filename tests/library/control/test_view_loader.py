"""The view loader refuses a broken view with a reason and loads the other views."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from truelog.control.view_loader import load_views
from truelog.schema.loading.events import load_events
from truelog.support.settings import Settings

VIEW = '''"""Counts by {by}."""
from pyspark.sql import DataFrame, functions as F
from truelog import Sum, View

def transform(page_view: DataFrame) -> DataFrame:
    return page_view.select(F.col("{by}").alias("what"), F.lit(1).alias("n"))

VIEW = View(reads=("page_view",), transform=transform, key=("what",), measures={{"n": Sum()}})
'''

CONFLICT = '''"""Two measures, or a measure and the key, make the same column."""
from pyspark.sql import DataFrame, functions as F
from truelog import Latest, Quantiles, Sum, View
from truelog import latest

def transform(page_view: DataFrame) -> DataFrame:
    return page_view.select("status", {selected})

VIEW = View(reads=("page_view",), transform=transform, key=("status",), measures={measures})
'''
STORED = CONFLICT.format(
    selected='latest("event_time", url="url").alias("a"), latest("event_time", url="referrer").alias("b")',
    measures='{"a": Latest(), "b": Latest()}',
)
SHOWN = CONFLICT.format(
    selected='F.col("bytes").alias("n"), F.lit(1).alias("n_p50")', measures='{"n": Quantiles(), "n_p50": Sum()}'
)
KEYED = CONFLICT.format(selected='latest("event_time", status="status").alias("a")', measures='{"a": Latest()}')

ORDERED = CONFLICT.format(selected='latest("event_time", a_at="url").alias("a")', measures='{"a": Latest()}')
OF_ORDER = CONFLICT.format(selected='latest("event_time", topic="url").alias("a")', measures='{"a": Latest()}')
LOCATED = '''"""A group whose input has the name of a coordinate."""
from truelog import Group

VIEW = Group(reads=("click",), transform=None, by=("url",), inputs=("offset",), fold=None, key=("url",), values=())
'''
CONFLICTS = {"stored": STORED, "shown": SHOWN, "keyed": KEYED, "ordered": ORDERED, "of_order": OF_ORDER}
CONFLICTS |= {"located": LOCATED}


def test_a_broken_view_does_not_affect_others(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(VIEW.format(by="status"))
    (tmp_path / "unreadable.py").write_text("VIEW = View(")
    (tmp_path / "impossible.py").write_text(VIEW.format(by="no_such_column"))
    configured, types = settings.model_copy(update={"views_folder": tmp_path}), load_events()
    (tmp_path / "unspeakable.py").write_text(VIEW.format(by="status").replace("what", 'wh\\"at'))
    loaded = load_views(spark, configured, types, ["good", "gone", "impossible", "unreadable", "unspeakable"])
    assert [each.name for each in loaded.compiled] == ["good"]
    assert loaded.refused.keys() == {"gone", "impossible", "unreadable", "unspeakable"}
    assert loaded.refused["unreadable"].startswith("BadDeclaration: unreadable.py cannot be loaded: SyntaxError")
    assert "no_such_column" in loaded.refused["impossible"]
    assert "cannot be the name of a table or a column" in loaded.refused["unspeakable"]
    assert "There is no view 'gone'" in loaded.refused["gone"]

    for name, text in CONFLICTS.items():
        (tmp_path / f"{name}.py").write_text(text)
    refused = load_views(spark, configured, types, list(CONFLICTS)).refused
    assert "the measure 'a' and the measure 'b' both make a column 'url'" in refused["stored"]
    assert "the measure 'n' and the measure 'n_p50' both make a column 'n_p50'" in refused["shown"]
    assert "the key and the measure 'a' both make a column 'status'" in refused["keyed"]
    assert "the measure 'a' makes the column 'a_at' for its own order" in refused["ordered"]
    assert "the measure 'a' makes the column 'a_topic' for its own order" in refused["of_order"]
    assert "an input already has the column offset; rename the column" in refused["located"]

    (tmp_path / "unreadable.py").write_text("VIEW = View()")
    assert (
        load_views(spark, configured, types, ["good", "gone", "impossible", "unreadable", "unspeakable"]).code
        != loaded.code
    )


GROUPED = '''"""Clicks of each URL."""
from pyspark.sql import DataFrame, functions as F
from truelog import Group

def transform(click: DataFrame) -> DataFrame:
    return click.select("url", "visitor_id")

def fold(inputs: DataFrame) -> DataFrame:
    return inputs.groupBy("url").agg(F.count("*").alias("clicks"))

VIEW = Group(reads=("click",), transform=transform, by=("url",), inputs=("visitor_id",), fold=fold, key=("url",),
             values=("clicks",))
'''


ONCE = VIEW.replace("page_view", "click").replace("measures", 'dedupe="1 hour", measures').format(by="url")


@pytest.mark.parametrize("declared", [GROUPED, ONCE])
def test_a_view_that_depends_on_earlier_events_needs_a_topic_with_a_key(
    spark: SparkSession, settings: Settings, tmp_path: Path, declared: str
) -> None:
    (tmp_path / "grouped.py").write_text(declared)
    configured, types = settings.model_copy(update={"views_folder": tmp_path}), load_events()
    keyless = replace(types["click"], topic=replace(types["click"].topic, key=None))
    assert [each.name for each in load_views(spark, configured, types, ["grouped"]).compiled] == ["grouped"]
    loaded = load_views(spark, configured, types | {"click": keyless}, ["grouped"])
    assert loaded.compiled == []
    assert "the events of click, whose topic has no key" in loaded.refused["grouped"]


STEPPED = '''"""Clicks in steps."""
from pyspark.sql import DataFrame, functions as F
from truelog import Group, Steps

def transform(click: DataFrame) -> DataFrame:
    return click.select("url", "visitor_id")

def initial():
    return F.struct(F.lit(0).alias("clicks"))

def step(state, click):
    return F.struct((state["clicks"] + 1).alias("clicks"))

VIEW = Group(reads=("click",), transform=transform, by=("{0}",), inputs=("{1}",), fold=Steps(initial, step),
             key=("{0}",), values=("clicks",))
'''


def test_the_groups_of_steps_contain_the_key_of_the_topic(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "by_visitor.py").write_text(STEPPED.format("visitor_id", "url"))
    (tmp_path / "by_url.py").write_text(STEPPED.format("url", "visitor_id"))
    configured = settings.model_copy(update={"views_folder": tmp_path})
    loaded = load_views(spark, configured, load_events(), ["by_visitor", "by_url"])
    assert [each.name for each in loaded.compiled] == ["by_visitor"]
    assert "`by` must contain visitor_id, the key of click" in loaded.refused["by_url"]
