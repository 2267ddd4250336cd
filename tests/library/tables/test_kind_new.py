"""A new kind of table is one folder and one entry of `KINDS`: then each layer above calls its verbs."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.archived import Archived, change, new_archive
from tests.beds.lab import Lab
from truelog import Sum, tables
from truelog.history.explain import explain
from truelog.history.explanation import Verdict
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.repair import repair
from truelog.support.settings import Settings
from truelog.tables import kinds

# The rows of this kind count each event twice. A layer that did not ask the kind would count it once.
TWICE = '''"""A kind of table whose rows count each event twice."""

from dataclasses import replace

from pyspark.sql import functions as F

from truelog.tables.kind import Kind
from truelog.views.view import View


class Doubled(View):
    """The declaration."""


class Twice(Kind):
    def __init__(self):
        self.called = set()

    def is_declared_by(self, view):
        return isinstance(view, Doubled)

    def is_kind_of(self, table):
        return self.is_declared_by(table.view)

    def side_tables(self, view):
        return {"once": View(reads=view.reads, transform=view.transform, key=view.key, measures=view.measures)}

    def compile(self, compiling):
        self.called.add(f"compile {compiling.side}")
        return super().compile(compiling)

    def create(self, connection, table):
        self.called.add("create")

    def follow(self, plans, compiled, staged):
        self.called.add("follow")
        return super().follow(plans, compiled, staged)

    def add_batch(self, connection, compiled, staged):
        super().add_batch(connection, compiled, staged)
        super().add_batch(connection, compiled, replace(staged, sides={}))

    def states(self, table, source, only):
        return _doubled(super().states(table, source, only))

    def repair(self, repair):
        self.called.add("repair")
        return super().repair(repair)

    def trace(self, tracing):
        trace = super().trace(tracing)
        return replace(trace, rows=lambda steps: _doubled(trace.rows(steps)))


def _doubled(states):
    return states.withColumn("clicks", 2 * F.col("clicks"))
'''


def _per_url(click: DataFrame) -> DataFrame:
    return click.select("url", F.lit(1).alias("clicks"))


@pytest.fixture
def twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the new kind, in a folder beside those of the other kinds."""
    (tmp_path / "twice").mkdir()
    (tmp_path / "twice/kind.py").write_text(TWICE)
    monkeypatch.setattr(tables, "__path__", [*tables.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    module = importlib.import_module("truelog.tables.twice.kind")
    for name in ("truelog.tables.twice", module.__name__):
        monkeypatch.setitem(sys.modules, name, sys.modules.pop(name))
    return module


@pytest.fixture
def ground(lab: Lab, s3: Settings, twice: Any, monkeypatch: pytest.MonkeyPatch) -> Archived:
    monkeypatch.setattr(kinds, "KINDS", (twice.Twice(), *kinds.KINDS))
    made = new_archive(
        lab, s3, twice.Doubled(reads=("click",), transform=_per_url, key=("url",), measures={"clicks": Sum()})
    )
    made.click_in_order([(0, "a", "1", 10), (1, "b", "1", 20), (0, "a", "1", 30)])
    made.stream()
    return made


def rows(ground: Archived) -> dict[str, int]:
    query = sql.SQL("SELECT url, clicks FROM {}").format(sql.Identifier("views", ground.compiled.name))
    return dict(ground.lab.connection.execute(query).fetchall())


def test_each_layer_calls_the_verbs_of_a_new_kind(ground: Archived) -> None:
    kind: Any = kinds.KINDS[0]
    assert rows(ground) == {"a": 4, "b": 2}
    assert compare(ground.rebuilder).verdict == "EQUAL"

    change(ground, ground.compiled.own.name, "UPDATE {} SET clicks = 7 WHERE url = 'b'")
    found = compare(ground.rebuilder)
    assert (found.verdict, found.different) == ("DIFFERENT", 1)
    assert repair(ground.rebuilder, found.positions) == 1
    assert rows(ground) == {"a": 4, "b": 2}
    assert kind.called == {"compile once", "compile ", "create", "follow", "repair"}

    explained = explain(ground.lab.context, ground.compiled, {"url": "a"})
    assert [list(each.rows) for each in explained.events] == [[{"url": "a", "clicks": n}] for n in (2, 4)]
    assert explained.verdict is Verdict.EQUAL


def test_a_kind_that_is_not_registered_is_not_asked(ground: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "KINDS", kinds.KINDS[1:])
    assert compare(ground.rebuilder).verdict == "DIFFERENT"
