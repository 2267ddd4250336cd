"""Bad records: which failures lead to a second attempt."""

from collections.abc import Sequence
from typing import NoReturn

import pytest
from pyspark.errors import PySparkException

from truelog import Sum, View
from truelog.kernel.bad_records import exclude_and_retry
from truelog.kernel.exclusions import Excluded
from truelog.log.records import EventFrames
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table import Table

VIEW = View(reads=("click",), transform=lambda click: click, key=("url",), measures={"clicks": Sum()})
COMPILED = CompiledView((Table("clicks", VIEW, {}, ""),))


def _no_events() -> EventFrames:
    raise AssertionError("the events are needed only to search them for bad records")


def test_an_attempt_that_succeeds_excludes_no_record() -> None:
    assert list(exclude_and_retry(COMPILED, _no_events, lambda excluded: excluded)) == []


def test_a_failure_that_no_value_causes_is_raised_without_a_second_attempt() -> None:
    attempts: list[Sequence[Excluded]] = []

    def attempt(excluded: Sequence[Excluded]) -> NoReturn:
        attempts.append(excluded)
        raise PySparkException("an executor was lost")

    with pytest.raises(PySparkException, match="an executor was lost"):
        exclude_and_retry(COMPILED, dict, attempt)

    assert attempts == [()]
