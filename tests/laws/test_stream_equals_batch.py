"""Law 1: however the log is cut into micro-batches and interleaved, the streamed table equals the rebuilt table."""

from dataclasses import replace

import pytest
from pyspark.sql.types import DataType, IntegerType

from tests.laws.lab import Lab, cases
from tests.laws.views import EVERY_MEASURE, VIEWS
from truelog import Sum
from truelog.views import measures
from truelog.views.compiled_view import extend_view


def test_the_laws_cover_every_measure() -> None:
    existing = {
        each for each in vars(measures).values() if isinstance(each, type) and issubclass(each, measures.Measure)
    }
    assert {type(measure) for measure in EVERY_MEASURE.measures.values()} == existing - {measures.Measure}


@pytest.mark.parametrize("name", VIEWS)
def test_streamed_equals_rebuilt(lab: Lab, name: str) -> None:
    drawn = cases(lab.types, VIEWS[name].reads)

    result = lab.compare_all(name, VIEWS[name], drawn)

    assert result.rows > len(drawn), "the cases hold too few events to show a difference"
    assert (result.missing, result.extra, result.different) == (0, 0, 0)


@pytest.mark.parametrize("name", [name for name, view in VIEWS.items() if view.keep])
def test_old_rows_expire_in_the_stream_and_in_the_rebuild_alike(lab: Lab, name: str) -> None:
    drawn, view = cases(lab.types, VIEWS[name].reads), VIEWS[name]

    without_expiry = lab.compare_all(f"{name}_for_ever", replace(view, keep=None), drawn)
    with_expiry = lab.compare_all(name, view, drawn)

    assert len(drawn) < with_expiry.rows < without_expiry.rows, "the clock expires too few rows, or too many"
    assert with_expiry.unequal == 0


class _Overwritten(Sum):
    """A sum that overwrites the existing value. The first merge never shows this classic defect."""

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f"excluded.{name}"}


def test_the_law_catches_a_merge_that_overwrites(lab: Lab) -> None:
    planted = replace(EVERY_MEASURE, measures={**EVERY_MEASURE.measures, "views": _Overwritten()})

    result = lab.compare_all("planted", planted, cases(lab.types, planted.reads, number=50))

    assert result.different > 0


def test_states_add_up_in_spark_as_they_do_in_postgresql(lab: Lab) -> None:
    """A log day's partials are states, which a rebuild adds up in Spark."""
    compiled = lab.compiled("partials", EVERY_MEASURE)
    by_case = extend_view(compiled, "case_id", IntegerType())
    by_cut = extend_view(by_case, "cut", IntegerType())
    rows = lab.transformed(EVERY_MEASURE, cases(lab.types, EVERY_MEASURE.reads)).persist()

    at_once = by_case.stored(by_case.totals(rows))
    in_parts = by_case.stored(by_case.plus(by_cut.totals(rows).drop("cut")))

    assert at_once.count() > 0
    assert at_once.exceptAll(in_parts).union(in_parts.exceptAll(at_once)).take(3) == []
