"""Finds the groups whose fold fails, by group testing, and leaves them out.

A fold should be total. If it fails on the inputs of a group, or makes two rows with one key there, the group has no
rows, like a group with too many inputs. Otherwise, a single event would stop the view for ever. A fold gets the inputs
of a group in the order of the log and in one task, so it fails on the same groups in a stream and in every rebuild.

Many failing groups mean a broken fold. The view then stalls.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from truelog.support.errors import TooManyExcluded
from truelog.tables.compiled_view import CompiledView
from truelog.tables.fold.compiled import Fold, fold_of, folded_tables, inputs_of, values_of
from truelog.tables.staging.failed_group import FailedGroup
from truelog.tables.staging.value_error import FAILURES, is_value_error, reason

MOST = 100  # groups
_FEW = 256  # groups that the driver collects, to test halves of this list
_VALUES, _PLACE = "_values", "_place"
_PLACES = (-(2**63), 2**63 - 1)  # the hashes of groups

_T = TypeVar("_T")


def leaving_out(
    compiled: CompiledView,
    inputs: Callable[[], DataFrame],
    attempt: Callable[[CompiledView], _T],
    searched: Callable[[], CompiledView] | None = None,
) -> _T:
    """Run `attempt`; if the fold fails on some groups, run it again with a view that leaves these groups out.

    `inputs` and `searched` are called only after a failure. They return the stored inputs of whole groups, and the view
    whose folds are tried on them, if `compiled` has no complete fold.

    Raises:
        TooManyExcluded: the fold fails on more than 100 groups that have not expired.
    """
    try:
        return attempt(compiled)
    except FAILURES as error:
        if not is_value_error(error):
            raise
        failed = _find(searched() if searched else compiled, inputs(), error)
    return attempt(_without(compiled, failed))


def _without(compiled: CompiledView, failed: Sequence[FailedGroup]) -> CompiledView:
    """The view whose folds leave these groups out."""
    return _with_folds(compiled, lambda fold: replace(fold, failed=(*fold.failed, *failed)))


def without_expired(compiled: CompiledView, limit: datetime | None) -> CompiledView:
    """The view whose folds leave out the groups that have expired: their rows would be dropped in any case."""
    return compiled if limit is None else _with_folds(compiled, lambda fold: replace(fold, since=limit))


def with_expired(compiled: CompiledView) -> CompiledView:
    """The view whose folds also compute the rows of expired groups, as the plan of any moment does."""
    return _with_folds(compiled, lambda fold: replace(fold, since=None))


def _with_folds(compiled: CompiledView, change: Callable[[Fold], Fold]) -> CompiledView:
    tables = (
        replace(each, derivation=change(each.derivation)) if isinstance(each.derivation, Fold) else each
        for each in compiled.tables
    )
    return replace(compiled, tables=tuple(tables))


def _find(compiled: CompiledView, inputs: DataFrame, error: Exception) -> list[FailedGroup]:
    """The groups on which the fold fails; raise `error` if there are none, or if it is not the fold that fails."""
    values = values_of(inputs_of(compiled), fold_of(compiled.own).by)
    kept = inputs.withColumn(_VALUES, values).withColumn(_PLACE, F.xxhash64(_VALUES)).persist()
    try:
        search = Search(compiled, kept)
        if search.fails_without_fold():
            raise error
        found = list(islice(search.failed(), MOST + 1))
    finally:
        kept.unpersist()
    if not found and fold_of(compiled.own).since is None:
        raise error
    require_few(compiled, len(found), found[-1].error if found else "")
    return found  # none if only groups failed that have expired


def require_few(compiled: CompiledView, failed: int, last_error: str) -> None:
    """Require that the fold fails on few groups.

    Raises:
        TooManyExcluded: the fold is broken, or a producer sends other values than before.
    """
    if failed > MOST:
        raise TooManyExcluded(
            f"the fold of {compiled.name} fails on more than {MOST} groups, so the view stops instead of leaving them "
            f"out. Mend the fold under the next version, or the producer. The last error: {last_error}"
        )


@dataclass(frozen=True)
class Search:
    """The search among these inputs, which Spark keeps, each with the values and the hash of its group."""

    compiled: CompiledView
    inputs: DataFrame

    def fails_without_fold(self) -> bool:
        return _failure([self.inputs]) is not None

    def failed(self) -> Iterator[FailedGroup]:
        """Halve the hashes until few groups are left, and then the list of these groups."""
        spans = [_PLACES]
        while spans:
            first, last = spans.pop()
            if self.error_between(first, last) is None:
                continue
            groups = self.groups(first, last)
            if len(groups) > _FEW and first < last:
                middle = (first + last) // 2
                spans += [(middle + 1, last), (first, middle)]
            elif groups:
                yield from self._among(groups)

    def _among(self, groups: Sequence[str]) -> Iterator[FailedGroup]:
        """The failing groups of a list with at least one. If its first half does not fail, the second half does."""
        if len(groups) == 1:
            if error := self.error_in(groups):
                yield FailedGroup(groups[0], error)
            return
        first, second = groups[: len(groups) // 2], groups[len(groups) // 2 :]
        first_fails = self.error_in(first) is not None
        if first_fails:
            yield from self._among(first)
        if not first_fails or self.error_in(second) is not None:
            yield from self._among(second)

    def groups(self, first: int, last: int) -> list[str]:
        """The values of the groups between these hashes, at most one too many."""
        found = self.inputs.where(_between(first, last)).select(_VALUES).distinct().limit(_FEW + 1).collect()
        return sorted(str(each[0]) for each in found)

    def error_between(self, first: int, last: int) -> str | None:
        """The reason why the fold of the groups between these hashes fails; None if it does not fail."""
        return self._failure(_between(first, last))

    def error_in(self, groups: Sequence[str]) -> str | None:
        """The reason why the fold of these groups fails; None if it does not fail."""
        return self._failure(F.col(_VALUES).isin(*groups))

    def _failure(self, chosen: Column) -> str | None:
        inputs = self.inputs.where(chosen).drop(_VALUES, _PLACE)
        tables = folded_tables(self.compiled)
        return _failure([each.hashed(fold_of(each).folded(each, inputs)) for each in tables])


def _between(first: int, last: int) -> Column:
    return F.col(_PLACE).between(first, last)


def _failure(frames: Sequence[DataFrame]) -> str | None:
    try:
        for each in frames:
            each.write.format("noop").mode("overwrite").save()
    except FAILURES as error:
        if not is_value_error(error):
            raise
        return reason(error)
    return None
