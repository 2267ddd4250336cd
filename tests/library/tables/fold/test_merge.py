"""What the merge of a Group deletes and records, and when it stages nothing; without Spark."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar
from unittest import mock

import pytest
from psycopg import sql

from tests.builders.views import a_failed_group, an_oversized_group
from tests.library.tables.fold.grouped import AT, DAY, GROUPED, MOST, NAME, made, unused
from truelog import Steps
from truelog.schema.names import COORDINATES
from truelog.storage.database import Connection, names
from truelog.support.errors import TooManyExcluded
from truelog.tables.compiled_view import CompiledView
from truelog.tables.deploy import create_stage, create_table
from truelog.tables.fold import failing, merge
from truelog.tables.fold import inputs as loaded_inputs
from truelog.tables.fold.compiled import Fold
from truelog.tables.fold.inputs import GroupText
from truelog.tables.stage import NO_ROWS, StagedRows
from truelog.tables.staging.failed_group import FailedGroup
from truelog.tables.table import Table
from truelog.views.group import CHECKPOINTS, INPUTS


@dataclass
class Groups:
    """The groups of one view, each named by its URL, and their tables."""

    connection: Connection
    compiled: CompiledView

    def add(self, schema: str, side: str, url: str, offset: int | None = None, **values: Any) -> None:
        [table] = [each for each in self.compiled.tables if each.side == side]
        row = {"url": url, "at": AT, "day": DAY} | values
        if offset is not None:
            row |= dict(zip(COORDINATES, ("click", 0, offset), strict=True))
        query = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(schema, table.name), names(row), sql.SQL(", ").join(map(sql.Literal, row.values()))
        )
        self.connection.execute(query)

    def add_inputs(self, url: str, number: int) -> None:
        for offset in range(number):
            self.add("state", INPUTS, url, offset)

    def touch(self, url: str, offset: int, attempt: str = "new") -> None:
        """Stage an input of the group."""
        self.add("stage", INPUTS, url, offset, _attempt=attempt)

    def left(self, side: str, *columns: str) -> list[tuple[Any, ...]]:
        [table] = [each for each in self.compiled.tables if each.side == side]
        query = sql.SQL("SELECT {} FROM {} ORDER BY {}").format(
            names(("url", *columns)), sql.Identifier("state", table.name), names(("url", *columns))
        )
        return self.connection.execute(query).fetchall()

    def recorded(self, table: str) -> dict[tuple[str, int, str], Any]:
        """By view, version and URL: the error of a failed group, True for an oversized one."""
        value = "error" if table == "failed_group" else "true"
        query = sql.SQL('SELECT view, version, "group" ->> 0, {} FROM {}')
        found = self.connection.execute(query.format(sql.SQL(value), sql.Identifier("truelog", table))).fetchall()
        return {(view, version, url): each for view, version, url, each in found}


def oversized(groups: Groups) -> set[str]:
    return {url for view, _, url in groups.recorded("oversized_group") if view == NAME}


def errors(groups: Groups) -> dict[str, str]:
    return {url: error for (view, _, url), error in groups.recorded("failed_group").items() if view == NAME}


@pytest.fixture(params=[GROUPED, replace(GROUPED, fold=Steps(unused, unused, every=1))], ids=["fold", "steps"])
def groups(connection: Connection, request: pytest.FixtureRequest) -> Iterator[Groups]:
    compiled = made(request.param)
    with connection.transaction(force_rollback=True):
        for each in compiled.tables:
            create_table(connection, each, "state", each.name)
            create_stage(connection, each)
        yield Groups(connection, compiled)


def group(url: str) -> list[str]:
    """The group as it is recorded."""
    return [url, AT.isoformat(), DAY.isoformat()]


def text(url: str) -> GroupText:
    return (url, AT.isoformat(), DAY.isoformat())


def failed(url: str, error: str = "overflow") -> FailedGroup:
    return FailedGroup(json.dumps([url, str(int(AT.timestamp()) * 1_000_000), "-2"]), error)


def staged(*errors: FailedGroup) -> StagedRows:
    """The accepted attempts: `new` of the inputs, `own` of the rows."""
    return StagedRows(("own",), 0, 0, {INPUTS: StagedRows(("new",), 0, 0)}, errors)


def test_the_rows_of_touched_groups_alone_are_deleted(groups: Groups) -> None:
    for url in "abc":
        groups.add("state", "", url)
    groups.touch("a", 5)
    groups.touch("a", 9)
    groups.touch("b", 5, attempt="refused")
    merge.replace_touched(groups.connection, groups.compiled, "state", staged())
    assert groups.left("") == [("b",), ("c",)]
    [on] = groups.connection.execute("SHOW enable_seqscan").fetchone() or ()
    assert on == "on"


def test_checkpoints_go_from_the_first_new_input_on_and_all_of_a_failed_group(connection: Connection) -> None:
    compiled = made(replace(GROUPED, fold=Steps(unused, unused, every=1)))
    with connection.transaction(force_rollback=True):
        for each in compiled.tables:
            create_table(connection, each, "state", each.name)
            create_stage(connection, each)
        groups = Groups(connection, compiled)
        for url in "abc":
            for offset in (1, 5, 7):
                groups.add("state", CHECKPOINTS, url, offset)
        groups.touch("a", 7)
        groups.touch("a", 5)
        groups.touch("b", 7)
        merge.replace_touched(connection, compiled, "state", staged(failed("b"), failed("c")))
        assert groups.left(CHECKPOINTS, "offset") == [("a", 1), ("c", 1), ("c", 5), ("c", 7)]


def fill(groups: Groups, url: str, number: int) -> None:
    """Give the group so many inputs, with the checkpoints that a stream would have kept."""
    groups.add_inputs(url, number)
    if len(groups.compiled.sides) > 1:
        for offset in range(min(number, MOST)):
            groups.add("state", CHECKPOINTS, url, offset, number=offset + 1)


def test_touched_groups_with_too_many_inputs_and_no_rows_are_recorded(groups: Groups) -> None:
    for url, number in (("full", MOST), ("over", MOST + 1), ("more", MOST + 2), ("untouched", MOST + 1)):
        fill(groups, url, number)
    fill(groups, "with_rows", MOST + 1)
    groups.add("stage", "", "with_rows", _attempt="own")
    groups.add("stage", "", "over", _attempt="refused")
    for url in ("full", "over", "more", "with_rows"):
        groups.touch(url, 0)
    for _ in range(2):
        merge.record_left_out(groups.connection, groups.compiled, staged())
        assert oversized(groups) == {"over", "more"}


def test_a_group_is_too_large_by_its_own_inputs(groups: Groups) -> None:
    fill(groups, "over", MOST + 1)
    groups.touch("over", 0)
    groups.touch("small", 0)
    merge.record_left_out(groups.connection, groups.compiled, staged())
    assert oversized(groups) == {"over"}


def test_a_group_that_is_not_too_large_any_more_is_forgotten(groups: Groups) -> None:
    fill(groups, "full", MOST)
    fill(groups, "over", MOST + 1)
    for url in ("full", "over", "untouched"):
        an_oversized_group(groups.connection, NAME, group(url))
    others = [(NAME, 2), ("another", 1)]
    for view, version in others:
        an_oversized_group(groups.connection, view, group("full"), version=version)
    merge.record_repaired(groups.connection, groups.compiled, [text("full"), text("over")], staged())
    expected = {(NAME, 1, "over"), (NAME, 1, "untouched"), *((*each, "full") for each in others)}
    assert groups.recorded("oversized_group").keys() == expected


@pytest.mark.parametrize("is_repair", [True, False])
def test_failed_groups_are_recorded_and_forgotten_when_they_no_longer_fail(groups: Groups, is_repair: bool) -> None:
    touched = ["again", "new", "mended"]
    for url in touched:
        for offset in (0, 1):
            groups.touch(url, offset)
    for url in ("again", "mended", "untouched"):
        a_failed_group(groups.connection, NAME, group(url), "before")
    others = [(NAME, 2), ("another", 1)]
    for view, version in others:
        a_failed_group(groups.connection, view, group("mended"), "theirs", version=version)
    found = staged(failed("again"), failed("new"), failed("of no touched group"))
    if is_repair:
        merge.record_repaired(groups.connection, groups.compiled, [text(url) for url in touched], found)
    else:
        merge.record_left_out(groups.connection, groups.compiled, found)
    kept = {(NAME, 1, "again"): "overflow", (NAME, 1, "new"): "overflow", (NAME, 1, "untouched"): "before"}
    assert groups.recorded("failed_group") == kept | {(*each, "mended"): "theirs" for each in others}


def record_failed(groups: Groups, *urls: str) -> None:
    """Record that these groups have failed now, and no more than 2 groups may have failed."""
    with mock.patch.object(failing, "MOST", 2):
        given = staged(*(failed(url, f"{url} overflows") for url in urls))
        merge.record_repaired(groups.connection, groups.compiled, [text(url) for url in urls], given)


def test_groups_that_failed_before_count_too(groups: Groups) -> None:
    a_failed_group(groups.connection, NAME, group("earlier"), "before")
    for view, version in ((NAME, 2), ("another", 1)):
        a_failed_group(groups.connection, view, group("c"), "theirs", version=version)
    record_failed(groups, "a")
    assert errors(groups).keys() == {"earlier", "a", "c"}
    with pytest.raises(TooManyExcluded, match="The last error: b overflows"):
        record_failed(groups, "a", "b")


def test_the_number_of_failures_is_judged_only_when_a_group_fails(groups: Groups) -> None:
    for url in "abc":
        a_failed_group(groups.connection, NAME, group(url), "before")
    with mock.patch.object(failing, "MOST", 2):
        merge.record_left_out(groups.connection, groups.compiled, staged())
    assert errors(groups).keys() == {*"abc"}
    with pytest.raises(TooManyExcluded):
        record_failed(groups, "d")


def test_records_of_groups_before_the_limit_are_forgotten(groups: Groups) -> None:
    def record(minutes: int, url: str, view: str = NAME, version: int = 1) -> None:
        found = [url, (AT + timedelta(minutes=minutes)).isoformat(), DAY.isoformat()]
        an_oversized_group(groups.connection, view, found, version=version)
        a_failed_group(groups.connection, view, found, "overflow", version=version)

    for minutes, url in ((-1, "old"), (0, "at the limit"), (1, "new")):
        record(minutes, url)
    for view, version in ((NAME, 2), ("another", 1)):
        record(-60, "old", view, version)
    for keep, kept in ((None, {"old", "at the limit", "new"}), ("1 day", {"at the limit", "new"})):
        merge.forget_expired(groups.connection, made(replace(GROUPED, keep=keep)), AT)
        for table in ("oversized_group", "failed_group"):
            found = groups.recorded(table)
            assert {url for view, version, url in found if (view, version) == (NAME, 1)} == kept
            assert {each[:2] for each in found if each[2] == "old"} >= {(NAME, 2), ("another", 1)}


def test_what_follows_from_the_inputs_of_a_group_is_deleted(groups: Groups) -> None:
    for url in "ab":
        groups.add("state", "", url)
        fill(groups, url, 1)
    merge.delete_groups(groups.connection, groups.compiled, [text("a")])
    assert (groups.left(""), groups.left(INPUTS)) == ([("b",)], [("a",), ("b",)])
    if len(groups.compiled.sides) > 1:
        assert groups.left(CHECKPOINTS) == [("b",)]


def test_a_repair_changes_the_rows_that_are_not_folded_as_they_were(groups: Groups) -> None:
    for url, total in (("same", 1), ("wrong", 1), ("gone", 1), ("of no group", 1)):
        groups.add("state", "", url, total=total)
    for url, total, attempt in (("same", 1, "own"), ("wrong", 2, "own"), ("new", 1, "own"), ("gone", 1, "another")):
        groups.add("stage", "", url, total=total, _attempt=attempt)
    listed = [text(url) for url in ("same", "wrong", "gone", "new")]
    query = merge.changed_keys(groups.compiled, groups.compiled.own, listed, staged())
    assert sorted(url for url, *_ in groups.connection.execute(query).fetchall()) == ["gone", "new", "wrong"]


FURTHER = sql.Composed([])


@pytest.mark.parametrize(("attempts", "further"), [((), None), (("new",), None), ((), FURTHER), (("new",), FURTHER)])
def test_a_batch_is_folded_if_it_or_a_rule_touches_a_group(attempts: tuple[str, ...], further: Any) -> None:
    compiled, given = made(GROUPED), StagedRows(attempts, 0, 0)
    folded, loaded = StagedRows(("own",), 1, 1), mock.Mock()
    with (
        mock.patch.object(merge, "_stage_folded", return_value=folded) as fold,
        mock.patch.object(loaded_inputs, "load_touched", return_value=loaded) as load,
    ):
        found = merge.stage_touched(mock.sentinel.plans, compiled, given, further)
    if attempts or further is not None:
        assert found == folded
        load.assert_called_once_with(mock.sentinel.plans, compiled, given, further)
        fold.assert_called_once_with(compiled, mock.sentinel.plans, loaded)
    else:
        assert found is NO_ROWS


@pytest.mark.parametrize("listed", [[], [text("a")]])
def test_a_repair_of_no_group_folds_nothing(listed: Sequence[GroupText]) -> None:
    folded = StagedRows(("own",), 1, 1)
    with (
        mock.patch.object(merge, "_stage_folded", return_value=folded),
        mock.patch.object(loaded_inputs, "load_groups") as load,
    ):
        found = merge.stage_groups(mock.sentinel.plans, made(GROUPED), listed)
    assert (found, load.called) == ((folded, True) if listed else (NO_ROWS, False))


class Plans:
    """Notes which tables are staged, and from which fold."""

    kept: ClassVar[list["Plans"]] = []

    def __init__(self, spark: object, settings: object) -> None:
        self.spark, self.settings, self.folds = spark, settings, list[Fold]()
        Plans.kept.append(self)

    def stage_each(self, tables: Sequence[Table], *_: object) -> list[StagedRows]:
        self.folds += [each.derivation for each in tables if isinstance(each.derivation, Fold)]
        return [StagedRows((each.side or "own",), 1, 1) for each in tables]


def test_a_second_attempt_leaves_groups_out_and_repeats_no_plan(groups: Groups) -> None:
    """The plan of a batch is repeated later. It must not know which groups fail or have expired now."""
    before = AT - timedelta(days=1)
    compiled = failing.without_expired(groups.compiled, before)
    plans = Plans("spark", "settings")

    def tried(first: CompiledView, inputs: object, attempt: Any) -> tuple[StagedRows, StagedRows]:
        assert inputs is unused
        return attempt(first), attempt(failing._without(first, [failed("a")]))

    with mock.patch.object(failing, "leaving_out", tried), mock.patch.object(merge, "BatchPlans", Plans):
        found: Any = merge._stage_folded(compiled, plans, unused)  # type: ignore[arg-type]
    first, second = found
    others = Plans.kept[-1]
    assert others is not plans
    assert (others.spark, others.settings) == ("spark", "settings")
    assert {(each.failed, each.since) for each in plans.folds} == {((), None)}
    assert {(each.failed, each.since) for each in others.folds} == {((failed("a"),), before)}
    assert (first.failed, second.failed) == ((), (failed("a"),))
    assert (first.attempts, first.sides.keys()) == (("own",), {CHECKPOINTS} & {each.side for each in compiled.sides})
