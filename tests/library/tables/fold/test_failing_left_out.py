"""Which groups are left out after a failure, and after which failures no group is; without Spark."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from pyspark.errors import AnalysisException, ArithmeticException

from tests.library.tables.fold.grouped import AT, GROUPED, made
from truelog.support.errors import TooManyExcluded
from truelog.tables.compiled_view import CompiledView
from truelog.tables.fold import failing
from truelog.tables.fold.compiled import fold_of, folded_tables
from truelog.tables.staging.failed_group import FailedGroup

COMPILED = made(GROUPED)
BY_VALUE, OTHER = ArithmeticException("an overflow"), AnalysisException("no such column")
A, B = FailedGroup("a", "an overflow"), FailedGroup("b", "an overflow")


def left_out(compiled: CompiledView) -> set[tuple[FailedGroup, ...]]:
    return {fold_of(each).failed for each in folded_tables(compiled)}


class Attempt:
    """Fails as often as it has errors, and records the views that it got."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.tried = list(errors), list[CompiledView]()

    def __call__(self, compiled: CompiledView) -> str:
        self.tried.append(compiled)
        if self.errors:
            raise self.errors.pop(0)
        return "staged"


@pytest.fixture
def found() -> Iterator[mock.Mock]:
    with mock.patch.object(failing, "_find", return_value=[A, B]) as find:
        yield find


def test_nothing_is_searched_without_a_failure(found: mock.Mock) -> None:
    attempt = Attempt()
    assert failing.leaving_out(COMPILED, mock.Mock(side_effect=AssertionError), attempt) == "staged"
    assert (attempt.tried, found.called) == ([COMPILED], False)


def test_the_second_attempt_leaves_out_the_groups_that_were_found_too(found: mock.Mock) -> None:
    attempt, earlier = Attempt(BY_VALUE), FailedGroup("earlier", "it failed")
    compiled = failing._without(COMPILED, [earlier])
    assert failing.leaving_out(compiled, lambda: mock.sentinel.inputs, attempt) == "staged"
    found.assert_called_once_with(compiled, mock.sentinel.inputs, BY_VALUE)
    assert [left_out(each) for each in attempt.tried] == [{(earlier,)}, {(earlier, A, B)}]
    assert [each.derivation for each in attempt.tried[1].sides] == [each.derivation for each in COMPILED.sides]


def test_another_view_is_searched_if_the_attempt_has_no_complete_fold(found: mock.Mock) -> None:
    attempt, searched = Attempt(BY_VALUE), made(GROUPED)
    failing.leaving_out(COMPILED, mock.Mock(), attempt, lambda: searched)
    assert found.call_args.args[0] is searched
    assert [left_out(each) for each in attempt.tried] == [{()}, {(A, B)}]


@pytest.mark.parametrize("errors", [(OTHER,), (BY_VALUE, OTHER), (BY_VALUE, BY_VALUE), (ValueError("a defect"),)])
def test_other_errors_and_a_second_failure_are_raised(found: mock.Mock, errors: Sequence[Exception]) -> None:
    with pytest.raises(type(errors[-1])) as raised:
        failing.leaving_out(COMPILED, mock.Mock(), Attempt(*errors))
    assert raised.value is errors[-1]
    assert found.called is (errors[0] is BY_VALUE)


def test_expired_groups_are_left_out_from_a_limit_on() -> None:
    def since(compiled: CompiledView) -> set[object]:
        return {fold_of(each).since for each in folded_tables(compiled)}

    limited = failing.without_expired(COMPILED, AT)
    assert (since(limited), since(failing.without_expired(limited, None))) == ({AT}, {AT})
    assert (since(failing.with_expired(limited)), failing.without_expired(COMPILED, None)) == ({None}, COMPILED)


class Searched:
    """A search that finds these groups, one after the other."""

    def __init__(self, found: Sequence[FailedGroup], *, fails_without_fold: bool) -> None:
        self.found, self.without_fold, self.given = found, fails_without_fold, 0

    def fails_without_fold(self) -> bool:
        return self.without_fold

    def failed(self) -> Iterator[FailedGroup]:
        for each in self.found:
            self.given += 1
            yield each


Find = Callable[..., list[FailedGroup]]


@pytest.fixture
def frame() -> Any:
    """Inputs. What Spark keeps of them is `kept`."""
    made_frame: Any = mock.Mock()
    made_frame.withColumn.return_value.withColumn.return_value.persist.return_value = made_frame.kept
    return made_frame


@pytest.fixture
def find(frame: mock.Mock, monkeypatch: pytest.MonkeyPatch) -> Find:
    """The search among these groups. Its frame is forgotten, however it ends."""

    def found(search: Searched, compiled: CompiledView = COMPILED) -> list[FailedGroup]:
        def searching(view: CompiledView, kept: object) -> Searched:
            assert (view, kept) == (compiled, frame.kept)
            return search

        monkeypatch.setattr(failing, "Search", searching)
        monkeypatch.setattr(failing, "values_of", mock.Mock())
        monkeypatch.setattr(failing, "F", mock.Mock())
        try:
            return failing._find(compiled, frame, BY_VALUE)
        finally:
            frame.kept.unpersist.assert_called_once_with()

    return found


@pytest.mark.parametrize(("groups", "fails_without_fold"), [([A], True), ([], False)])
def test_the_failure_is_raised_if_it_is_not_that_of_a_fold(
    find: Find, groups: Sequence[FailedGroup], fails_without_fold: bool
) -> None:
    with pytest.raises(ArithmeticException) as raised:
        find(Searched(groups, fails_without_fold=fails_without_fold))
    assert raised.value is BY_VALUE


def test_only_expired_groups_may_have_failed(find: Find) -> None:
    expired = failing.without_expired(COMPILED, AT - timedelta(days=1))
    assert find(Searched([], fails_without_fold=False), expired) == []


@pytest.mark.parametrize("number", [1, failing.MOST])
def test_a_few_groups_are_found(find: Find, number: int) -> None:
    groups = [FailedGroup(str(n), "an overflow") for n in range(number)]
    assert find(Searched(groups, fails_without_fold=False)) == groups


def test_the_search_ends_at_one_group_too_many(find: Find) -> None:
    search = Searched([FailedGroup(str(n), f"error {n}") for n in range(2 * failing.MOST)], fails_without_fold=False)
    with pytest.raises(TooManyExcluded, match=f"The last error: error {failing.MOST}$"):
        find(search)
    assert search.given == failing.MOST + 1


def written(error: Exception | None) -> Any:
    """A frame whose rows Spark computes, and fails with the error."""
    frame = mock.Mock()
    frame.write.format.return_value.mode.return_value.save.side_effect = error
    return frame


def test_a_try_fails_by_a_value_in_any_of_its_tables() -> None:
    assert failing._failure([written(None), written(None)]) is None
    assert failing._failure([written(None), written(BY_VALUE)]) == "ArithmeticException: an overflow"
    with pytest.raises(AnalysisException):
        failing._failure([written(OTHER)])


def test_a_failure_without_the_fold_is_one_of_the_inputs() -> None:
    for error in (None, BY_VALUE):
        assert failing.Search(COMPILED, written(error)).fails_without_fold() is (error is not None)
