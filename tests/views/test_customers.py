"""Customers: the rows of a captured table, with deletions, changed keys, truncations, re-sent changes and snapshots."""

from typing import Any

from tests.beds.lab import Lab
from tests.builders.changes import change, ended
from tests.views.examples import Relations, Sent, example
from tests.views.generated import logs_and_relations
from truelog import View


def changed(operation: str, number: int | None, lsn: int, name: str | None = None, **place: Any) -> Sent:
    row = None if number is None else {"id": number, "name": name}
    return Sent("customers", change(operation, row, lsn=lsn, **place))


def read(number: int, name: str, lsn: int, snapshot: str = "true", epoch: int = 1) -> Sent:
    return changed("read", number, lsn, name, snapshot=snapshot, epoch=epoch)


def people(relations: Relations) -> dict[int, str]:
    return {row["id"]: row["name"] for row in relations["current"]}


SNAPSHOT = [read(1, "Ann", 5, "first"), read(2, "Bob", 5), read(3, "Eve", 5, "last")]


@example(SNAPSHOT)
def test_a_snapshot_is_the_table(relations: Relations) -> None:
    assert people(relations) == {1: "Ann", 2: "Bob", 3: "Eve"}


@example([*SNAPSHOT, changed("updated", 1, 7, "Ann B."), changed("deleted", 2, 8), changed("inserted", 4, 9, "Max")])
def test_changes_replace_and_remove_rows(relations: Relations) -> None:
    assert people(relations) == {1: "Ann B.", 3: "Eve", 4: "Max"}


@example([*SNAPSHOT, changed("deleted", 2, 8, "Bob"), changed("inserted", 20, 8, "Bob"), Sent("customers", b"")])
def test_a_changed_key_is_a_deletion_and_an_insertion_at_one_place(relations: Relations) -> None:
    assert people(relations) == {1: "Ann", 3: "Eve", 20: "Bob"}


LATER = changed("updated", 1, 20, "Ann C.", commit=15)


@example([*SNAPSHOT, LATER, changed("updated", 1, 10, "Ann B.", commit=9), changed("deleted", 2, 8, commit=7)])
def test_a_change_that_is_sent_again_restores_nothing(relations: Relations) -> None:
    assert people(relations) == {1: "Ann C.", 3: "Eve"}


@example([*SNAPSHOT, changed("updated", 1, 30, "first", commit=9), changed("updated", 1, 20, "second", commit=40)])
def test_the_order_of_commits_is_the_order_of_interleaved_transactions(relations: Relations) -> None:
    """The second transaction wrote to the log before the first, but committed after it."""
    assert people(relations)[1] == "second"


@example([*SNAPSHOT, changed("truncated", None, 10), changed("inserted", 2, 11, "Bob"), changed("heartbeat", None, 12)])
def test_a_truncation_closes_all_rows_before_it(relations: Relations) -> None:
    assert people(relations) == {2: "Bob"}


AGAIN = [read(1, "Ann", 40, "first", 2), read(3, "Eve", 40, "last", 2)]


@example([*SNAPSHOT, changed("inserted", 4, 30, "Max", commit=29), *AGAIN])
def test_a_second_snapshot_closes_the_rows_that_it_does_not_contain(relations: Relations) -> None:
    assert people(relations) == {1: "Ann", 3: "Eve"}


EMPTY = Sent("customers", ended(epoch=2, began=35))


@example([*SNAPSHOT, changed("inserted", 4, 30, "Max", commit=29), EMPTY])
def test_a_snapshot_of_an_empty_table_closes_every_row(relations: Relations) -> None:
    assert people(relations) == {}


@example(
    [*SNAPSHOT, read(1, "Ann", 33, "first", 2), read(2, "Bob", 33, "true", 2), read(1, "Ann", 40, "first", 2), EMPTY]
)
def test_a_row_that_only_an_interrupted_attempt_read_is_closed(relations: Relations) -> None:
    assert people(relations) == {1: "Ann"}


@example([*SNAPSHOT, AGAIN[0]])
def test_an_unfinished_snapshot_closes_no_row(relations: Relations) -> None:
    assert people(relations) == {1: "Ann", 2: "Bob", 3: "Eve"}


@example([*SNAPSHOT, *AGAIN, changed("updated", 3, 4, "late", epoch=2)])
def test_a_transaction_that_was_open_during_the_snapshot_counts_after_it(relations: Relations) -> None:
    """It wrote to the log before the snapshot, and committed after it."""
    assert people(relations) == {1: "Ann", 3: "late"}


def test_generated_changes_give_the_table_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    for events, relations in logs_and_relations(lab, name, view):
        ordered = sorted(events, key=lambda each: (each["source_place"], each["partition"], each["offset"]))
        table: dict[int, dict[str, Any]] = {}
        for each in ordered:
            is_row = each["id"] is not None and each["source_operation"] not in {"truncated", "heartbeat", "ended"}
            if is_row:
                table[each["id"]] = each
        closed = max((each["source_place"] for each in events if each["source_closes"]), default="")
        expected = {
            number: each["credit"]
            for number, each in table.items()
            if each["source_operation"] != "deleted" and each["source_place"] >= closed
        }
        assert {row["id"]: row["credit"] for row in relations["current"]} == expected
