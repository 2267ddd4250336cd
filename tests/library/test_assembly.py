"""Views as their files have them: what is broken is refused with its reason, and takes nobody along."""

from pathlib import Path

from pyspark.sql import SparkSession

from truelog.assembly import assemble
from truelog.event import load_events
from truelog.settings import Settings

VIEW = '''"""Counts by {by}."""
from pyspark.sql import DataFrame, functions as F
from truelog import Sum, View

def transform(page_view: DataFrame) -> DataFrame:
    return page_view.select(F.col("{by}").alias("what"), F.lit(1).alias("n"))

VIEW = View(reads=("page_view",), transform=transform, key=("what",), measures={{"n": Sum()}})
'''


def test_a_broken_view_takes_no_other_along(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(VIEW.format(by="status"))
    (tmp_path / "unreadable.py").write_text("VIEW = View(")
    (tmp_path / "impossible.py").write_text(VIEW.format(by="no_such_column"))
    here, types = settings.model_copy(update={"views_folder": tmp_path}), load_events()
    (tmp_path / "unspeakable.py").write_text(VIEW.format(by="status").replace("what", 'wh\\"at'))
    found = assemble(spark, here, types, ["good", "gone", "impossible", "unreadable", "unspeakable"])
    assert [each.name for each in found.compiled] == ["good"]
    assert found.refused.keys() == {"gone", "impossible", "unreadable", "unspeakable"}
    assert found.refused["unreadable"].startswith("SyntaxError")
    assert "no_such_column" in found.refused["impossible"]
    assert "cannot be a table's or a column's name" in found.refused["unspeakable"]
    assert "There is no view 'gone'" in found.refused["gone"]

    (tmp_path / "unreadable.py").write_text("VIEW = View()")
    assert assemble(spark, here, types, ["good", "gone", "impossible", "unreadable", "unspeakable"]).code != found.code
