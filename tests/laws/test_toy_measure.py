"""A new measure is one module, its SQL functions beside it, and one line of the registry: then every law runs on it."""

import importlib
import shutil
import sys
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from tests.beds.lab import Lab, cases
from tests.laws.measures import MEASURED, Measured, registered, view_of, without_law
from truelog import measures
from truelog.measures import registry
from truelog.measures.measure import Measure
from truelog.measures.registry import sql_functions
from truelog.storage.migration import migrate
from truelog.tables import table_hash

BITS = '''"""The bits that any of the values sets."""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from truelog.measures.columns import ColumnTypes
from truelog.measures.measure import Measure


@dataclass(frozen=True)
class Bits(Measure):
    def accepts(self, dtype: DataType) -> bool:
        return isinstance(dtype, ColumnTypes.WHOLE)

    def total(self, prepared: Column) -> Column:
        return F.bit_or(prepared)

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'truelog.bits_plus(t."{name}", excluded."{name}")'}
'''
BITS_SQL = """CREATE OR REPLACE FUNCTION truelog.bits_plus(a bigint, b bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT coalesce(a | b, a, b) $$;
"""


@pytest.fixture
def bits(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """The new measure in a copy of the package, registered, in a database that was migrated with it."""
    folder = shutil.copytree(Path(registry.__file__).parent, tmp_path / "measures")
    (folder / "bits.py").write_text(BITS)
    (folder / "bits.sql").write_text(BITS_SQL)
    monkeypatch.setattr(measures, "__path__", [str(folder)])
    monkeypatch.setattr(registry, "_HERE", folder)
    monkeypatch.setitem(registry.MEASURES, "Bits", "bits")
    importlib.invalidate_caches()
    monkeypatch.setitem(sys.modules, "truelog.measures.bits", importlib.import_module("truelog.measures.bits"))
    migrate(lab.settings, sql_functions())
    made: Measure = registered()[-1]()
    return made


def test_the_laws_ask_for_values_of_a_new_measure_and_then_hold_for_it(lab: Lab, bits: Measure) -> None:
    assert without_law(MEASURED) == {type(bits)}
    added = Measured(bits, lambda: F.col("status"))
    assert without_law({**MEASURED, "bits": added}) == set()

    view = view_of({"bits": added, "views": MEASURED["views"]})
    drawn = cases(lab.types, view.reads)
    differences = lab.compare_all("bits", view, drawn)
    assert (differences.rows > 20, differences.unequal) == (True, 0)
    _, in_database, in_spark = lab.digests("bits", view, drawn)
    assert table_hash.unequal_buckets(in_database, in_spark) == []
    at_once, in_parts = lab.totals(view, drawn)
    assert at_once.exceptAll(in_parts).union(in_parts.exceptAll(at_once)).take(3) == []
