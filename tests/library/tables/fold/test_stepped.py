"""Checkpoints of a Group of steps: a batch continues from them, and they are compared and repaired like rows."""

from dataclasses import replace

import pytest
from psycopg import sql
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tests.beds.archived import Archived, change, oversized
from tests.beds.lab import with_own
from truelog import Group, Steps
from truelog.batch import rejudge
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.serving import fallback
from truelog.tables.fold import inputs as loaded_inputs
from truelog.tables.fold.compiled import checkpoints_of, fold_of
from truelog.tables.fold.stepped import SEED, Stepped

EVERY, MOST = 2, 6


def _transform(click: DataFrame) -> DataFrame:
    return click.select("url", F.col("search_id").alias("word"))


def _empty() -> Column:
    return F.struct(F.lit("").alias("text"), F.lit(None).cast("decimal(9,2)").alias("size"))


def _another_word(state: Column, click: Column) -> Column:
    text = F.concat(state["text"], click["word"])
    return F.struct(text.alias("text"), F.length(text).cast("decimal(9,2)").alias("size"))


WORDS = Group(
    reads=("click",),
    transform=_transform,
    by=("url",),
    inputs=("word",),
    fold=Steps(_empty, _another_word, EVERY),
    key=("url",),
    values=("text", "size"),
    most=MOST,
)


def two_words(ground: Archived) -> None:
    spell(ground, 0, "a", "one")
    spell(ground, 0, "b", "x")
    ground.stream()


pytestmark = pytest.mark.ground(view=WORDS, filled=two_words)


def spell(ground: Archived, partition: int, url: str, text: str) -> None:
    """A click for each letter."""
    ground.click(partition, [(url, letter, 0) for letter in text])


def rows(ground: Archived) -> list[tuple[object, ...]]:
    view = sql.Identifier("views", ground.compiled.name)
    return ground.lab.connection.execute(sql.SQL("SELECT url, text FROM {} ORDER BY url").format(view)).fetchall()


def checkpoints(ground: Archived) -> list[tuple[object, ...]]:
    view = sql.Identifier("views", f"{ground.compiled.name}_checkpoints")
    query = 'SELECT url, number, partition, "offset", text FROM {} ORDER BY url, number'
    return ground.lab.connection.execute(sql.SQL(query).format(view)).fetchall()


def saved(ground: Archived) -> str:
    table = checkpoints_of(ground.compiled)
    assert table is not None
    return table.name


def loaded(ground: Archived) -> list[str]:
    """Stream, and return the letters that are loaded for it, and the texts of the seeds."""
    found = list[str]()

    def noted(inputs: DataFrame) -> DataFrame:
        letters = F.coalesce(F.col(SEED)["state"]["text"], "word").alias("letter")
        found.extend(row.letter for row in inputs.orderBy("partition", "offset").select(letters).collect())
        return fold.run(inputs)

    before, fold = ground.compiled, fold_of(ground.compiled.own)
    ground.compiled = with_own(before, derivation=replace(fold, run=noted))
    ground.stream()
    ground.compiled = before
    return found


def test_a_batch_loads_the_last_checkpoint_and_the_inputs_after_it(ground: Archived) -> None:
    assert checkpoints(ground) == [("a", 2, 0, 1, "on")]
    spell(ground, 0, "a", "two")
    assert loaded(ground) == ["on", "e", "t", "w", "o"]
    spell(ground, 0, "b", "y")
    assert loaded(ground) == ["x", "y"]
    assert rows(ground) == [("a", "onetwo"), ("b", "xy")]
    assert [each[1:] for each in checkpoints(ground)] == [
        (2, 0, 1, "on"),
        (4, 0, 4, "onet"),
        (6, 0, 6, "onetwo"),
        (2, 0, 7, "xy"),
    ]
    assert compare(ground.rebuilder).verdict == "EQUAL"


@pytest.mark.nightly
def test_an_input_before_a_checkpoint_replaces_the_checkpoint(ground: Archived) -> None:
    """No producer of ours writes the events of a key to two partitions, but another producer may."""
    spell(ground, 1, "a", "two")
    assert loaded(ground) == ["on", "e", "t", "w", "o"]
    spell(ground, 0, "a", "!?")
    assert loaded(ground) == ["on", "e", "!", "?", "t", "w", "o"]
    assert rows(ground) == [("b", "x")], "the group has too many inputs"
    assert [each[1:] for each in checkpoints(ground)] == [(2, 0, 1, "on"), (4, 0, 4, "one!"), (6, 1, 0, "one!?t")]
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_a_group_with_too_many_inputs_has_checkpoints_but_no_row(ground: Archived) -> None:
    spell(ground, 0, "a", "two")
    ground.stream()
    assert (rows(ground), oversized(ground)) == ([("a", "onetwo"), ("b", "x")], [])
    spell(ground, 0, "a", "!")
    ground.stream()
    assert (rows(ground), oversized(ground)) == ([("b", "x")], [["a"]])
    spell(ground, 0, "a", "????")
    assert loaded(ground)[:2] == ["onetwo", "!"], "the inputs before the last checkpoint are not loaded again"
    assert (rows(ground), oversized(ground)) == ([("b", "x")], [["a"]])
    assert [number for _, number, *_ in checkpoints(ground)] == [2, 4, 6]
    assert compare(ground.rebuilder).verdict == "EQUAL"


@pytest.mark.nightly
def test_a_wrong_checkpoint_and_the_row_that_follows_from_it_are_repaired(ground: Archived) -> None:
    change(ground, saved(ground), "UPDATE {} SET text = 'no' WHERE url = 'a'")
    found = compare(ground.rebuilder)
    assert (found.verdict, found.different, found.sample[0]["side"]) == ("DIFFERENT", 1, "checkpoints")
    spell(ground, 0, "a", "s")
    ground.stream()
    assert rows(ground) == [("a", "noes"), ("b", "x")]
    found = compare(ground.rebuilder)
    assert (found.verdict, found.different) == ("DIFFERENT", 3), "the checkpoint, the next checkpoint and the row"
    repaired = reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True))
    assert (repaired.verdict, repaired.repaired, rows(ground)) == ("EQUAL", 3, [("a", "ones"), ("b", "x")])


@pytest.mark.nightly
def test_a_missing_checkpoint_is_found_although_the_rows_are_right(ground: Archived) -> None:
    change(ground, saved(ground), "DELETE FROM {} WHERE url = 'a'")
    spell(ground, 0, "a", "s")
    ground.stream()
    found = reconcile(ground.lab.context, ground.compiled)
    assert (found.verdict, found.missing, rows(ground)) == ("EQUAL", 0, [("a", "ones"), ("b", "x")])
    change(ground, saved(ground), "DELETE FROM {} WHERE url = 'a' AND number = 4")
    found = compare(ground.rebuilder)
    assert (found.verdict, found.missing, found.different) == ("DIFFERENT", 1, 0)
    assert reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True)).verdict == "EQUAL"
    assert [number for _, number, *_ in checkpoints(ground)] == [2, 4]


@pytest.mark.nightly
def test_a_wrong_input_is_repaired_with_all_that_follows_from_it(ground: Archived) -> None:
    inputs = ground.compiled.sides[0].name
    change(ground, inputs, "UPDATE {} SET word = 'e' WHERE url = 'a' AND \"offset\" = 2")
    change(ground, inputs, "UPDATE {} SET word = 'O' WHERE url = 'a' AND \"offset\" = 0")
    change(ground, saved(ground), "UPDATE {} SET text = 'On' WHERE url = 'a'")
    spell(ground, 0, "a", "s")
    ground.stream()
    assert rows(ground) == [("a", "Ones"), ("b", "x")]
    assert reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True)).verdict == "EQUAL"
    assert rows(ground) == [("a", "ones"), ("b", "x")]


@pytest.mark.nightly
def test_a_certificate_a_fallback_and_another_reading_cover_checkpoints(ground: Archived) -> None:
    found = reconcile(ground.lab.context, ground.compiled)
    assert found.certificate is not None
    spell(ground, 0, "b", "yz")
    try:
        assert fallback.build_fallback(ground.rebuilder) == ground.positions.only(["click"])
        assert (rows(ground), len(checkpoints(ground))) == ([("a", "one"), ("b", "xyz")], 2)
    finally:
        ground.lab.connection.execute("DELETE FROM truelog.batch_answer WHERE view = %s", (ground.compiled.name,))
    ground.stream()
    rejudge.rebuild_under_reading(ground.rebuilder)
    assert (rows(ground), len(checkpoints(ground))) == ([("a", "one"), ("b", "xyz")], 2)
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_the_executors_role_may_read_inputs_and_checkpoints_but_no_rows(ground: Archived) -> None:
    query = "SELECT has_table_privilege('stager', format('state.%%I', %s::text), 'SELECT')"
    allowed = [ground.lab.connection.execute(query, (each.name,)).fetchone() for each in ground.compiled.tables]
    assert allowed == [(False,), (True,), (True,)]


def at_the_end_of_a_batch(stepped: Stepped, states: DataFrame) -> DataFrame:
    """A checkpoint after each batch's last input."""
    last = states.where("_at.number = _total")
    return last.select(*stepped.by, "_at.last.*", F.col("_at.number").alias("number"), "_at.state.*")


def one_too_early(stepped: Stepped, states: DataFrame) -> DataFrame:
    """Checkpoints with the number of the input before."""
    return right(stepped, states).withColumn("number", F.col("number") - 1)


right = Stepped.checkpoints


@pytest.mark.parametrize("defect", [at_the_end_of_a_batch, pytest.param(one_too_early, marks=pytest.mark.nightly)])
def test_checkpoints_elsewhere_are_found(ground: Archived, monkeypatch: pytest.MonkeyPatch, defect: object) -> None:
    spell(ground, 0, "a", "two")
    with monkeypatch.context() as planted:
        planted.setattr(Stepped, "checkpoints", defect)
        planted.setattr(ground, "compiled", ground.lab.compiled(ground.compiled.name, WORDS))
        ground.stream()
    found = compare(ground.rebuilder)
    assert (found.verdict, {row["side"] for row in found.sample}) == ("DIFFERENT", {"checkpoints"})


def test_a_fold_that_repeats_the_last_input_of_its_checkpoint_is_found(
    ground: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_seed = loaded_inputs._inputs_after_seed

    def from_seed(*given: object) -> sql.SQL:
        return sql.SQL(after_seed(*given).as_string(None).replace(") > (", ") >= ("))  # type: ignore[arg-type]

    spell(ground, 0, "a", "s")
    with monkeypatch.context() as planted:
        planted.setattr(loaded_inputs, "_inputs_after_seed", from_seed)
        ground.stream()
    assert compare(ground.rebuilder).verdict == "DIFFERENT"
