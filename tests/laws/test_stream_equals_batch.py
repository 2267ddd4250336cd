"""Law 1: cut the log anywhere, interleave its partitions anyhow; the streamed table is the rebuilt one."""

from dataclasses import replace

import pytest
from pyspark.sql.types import DataType, IntegerType

from tests.laws.lab import Lab, cases
from tests.laws.views import EVERY_MEASURE, VIEWS
from truelog import Sum
from truelog.views import measures
from truelog.views.compiled_view import extend_view


def test_no_measure_is_forgotten() -> None:
    there = {each for each in vars(measures).values() if isinstance(each, type) and issubclass(each, measures.Measure)}
    assert {type(measure) for measure in EVERY_MEASURE.measures.values()} == there - {measures.Measure}


@pytest.mark.parametrize("name", VIEWS)
def test_streamed_equals_rebuilt(lab: Lab, name: str) -> None:
    drawn = cases(lab.types, VIEWS[name].reads)

    result = lab.compare_all(name, VIEWS[name], drawn)

    assert result.rows > len(drawn), "the cases hold too little to tell the two apart"
    assert (result.missing, result.extra, result.different) == (0, 0, 0)


@pytest.mark.parametrize("name", [name for name, view in VIEWS.items() if view.keep])
def test_old_rows_leave_the_stream_and_the_rebuild_alike(lab: Lab, name: str) -> None:
    drawn, view = cases(lab.types, VIEWS[name].reads), VIEWS[name]

    kept_for_ever = lab.compare_all(f"{name}_for_ever", replace(view, keep=None), drawn)
    kept = lab.compare_all(name, view, drawn)

    assert len(drawn) < kept.rows < kept_for_ever.rows, "the clock lets too few rows leave, or too many"
    assert kept.unequal == 0


class _Overwritten(Sum):
    """A sum that forgets what stands: the classic defect, which the first example never shows."""

    def merged(self, name: str, kind: DataType) -> dict[str, str]:
        return {name: f"excluded.{name}"}


def test_the_law_catches_a_merge_that_overwrites(lab: Lab) -> None:
    planted = replace(EVERY_MEASURE, measures={**EVERY_MEASURE.measures, "views": _Overwritten()})

    result = lab.compare_all("planted", planted, cases(lab.types, planted.reads, number=50))

    assert result.different > 0


def test_states_add_up_in_spark_as_they_do_in_postgresql(lab: Lab) -> None:
    """Partials of a log day are states; a rebuild adds them up in Spark."""
    compiled = lab.compiled("partials", EVERY_MEASURE)
    by_case = extend_view(compiled, "case_id", IntegerType())
    by_cut = extend_view(by_case, "cut", IntegerType())
    rows = lab.transformed(EVERY_MEASURE, cases(lab.types, EVERY_MEASURE.reads)).persist()

    at_once = by_case.stored(by_case.totals(rows))
    in_parts = by_case.stored(by_case.plus(by_cut.totals(rows).drop("cut")))

    assert at_once.count() > 0
    assert at_once.exceptAll(in_parts).union(in_parts.exceptAll(at_once)).take(3) == []
