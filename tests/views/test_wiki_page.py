"""Wiki pages: the current page, its versions, and the lines that each version adds and removes."""

import uuid
from collections import Counter, defaultdict
from typing import Any

from psycopg import sql

from tests.beds.lab import Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, examples, sent
from tests.views.generated import logs_and_relations, without_copies
from tests.views.rows_read import rows_read
from truelog import View
from truelog.tables import deploy as table


def edited(text: str | None, page: str = "Kafka", verb: str = "edited", **fields: Any) -> Sent:
    defaults = {"author_id": "ann", "title": f"About {page}", "occurred_at": at("10:00:00")}
    return sent("page_edit", page_id=page, verb=verb, text=text, **defaults | fields)


def changes(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["version"], row["added"], row["removed"]) for row in rows]


@example([edited("one"), edited("two", occurred_at=at("09:00:00")), edited(None, verb="deleted")], in_order=True)
def test_every_version_stays_in_the_order_of_the_log(rows: Rows) -> None:
    """An event time may be wrong, but the order of the log is not."""
    assert [(row["offset"], row["verb"], row["text"]) for row in rows] == [
        (0, "edited", "one"),
        (1, "edited", "two"),
        (2, "deleted", None),
    ]


TWO_PAGES = [edited("one"), edited("other", "Log", author_id="bob"), edited("two", comment="better")]
DELETED = [*TWO_PAGES, edited(None, verb="deleted")]
LOG = ("Log", "About Log", "other")


@examples(
    {
        "edited": (TWO_PAGES, [("Kafka", "About Kafka", "two"), LOG]),
        "deleted": (DELETED, [LOG]),
        "edited again": ([*DELETED, edited("again")], [("Kafka", "About Kafka", "again"), LOG]),
    },
    in_order=True,
)
def test_the_current_page_is_its_last_version(relations: Relations, expected: list[tuple[str, str, str]]) -> None:
    assert [(row["page_id"], row["title"], row["text"]) for row in relations["current"]] == expected


TEXTS = ("one\ntwo", "one\nthree\ntwo", "two\nthree\none", "one\none\ntwo", "one\none\ntwo")


@example([edited(text) for text in TEXTS], in_order=True)
def test_changes_are_the_lines_that_a_version_adds_and_removes(relations: Relations) -> None:
    assert changes(relations["changes"]) == [
        (1, ["one", "two"], []),
        (2, ["three"], []),
        (3, [], []),  # the lines only move
        (4, ["one"], ["three"]),
        (5, [], []),
    ]


@example([edited("b\na"), edited(None, verb="deleted"), edited("b\na\n")], in_order=True)
def test_a_deleted_page_loses_all_lines_and_gets_them_back(relations: Relations) -> None:
    assert changes(relations["changes"]) == [
        (1, ["b", "a"], []),
        (2, [], ["b", "a"]),
        (3, ["b", "a", ""], []),
    ]


def test_a_page_is_read_by_index(lab: Lab, view: View) -> None:
    name = f"wiki_{uuid.uuid4().hex[:8]}"
    compiled = lab.compiled(name, view)
    table.deploy_table(lab.connection, compiled)
    state = sql.Identifier("state", compiled.own.name)
    insert = "INSERT INTO {} (page_id, partition, \"offset\", verb, text) SELECT 'p' || n % 50, 0, n, 'edited', 'a'"
    lab.connection.execute(sql.SQL(insert + " FROM generate_series(1, 10000) AS n").format(state))
    lab.connection.execute(sql.SQL("VACUUM ANALYZE {}").format(state))

    def read(relation: str) -> int:
        select = sql.SQL("SELECT * FROM {} WHERE page_id = 'p7'").format(sql.Identifier("views", name + relation))
        return rows_read(lab, select)

    assert (read(""), read("_changes")) == (200, 200)
    assert read("_current") < 5


def test_generated_logs_give_the_pages_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    compared = 0
    for events, found in logs_and_relations(lab, name, view):
        pages = defaultdict[str, list[Row]](list)
        for event in sorted(without_copies(view, events), key=lambda each: (each["partition"], each["offset"])):
            pages[event["page_id"]].append(event)
        current = {page: edits[-1]["text"] for page, edits in pages.items() if edits[-1]["verb"] != "deleted"}
        assert {row["page_id"]: row["text"] for row in found["current"]} == current
        assert {(row["page_id"], row["version"]): (row["added"], row["removed"]) for row in found["changes"]} == {
            (page, number): naive_changes(lines(before), lines(edit))
            for page, edits in pages.items()
            for number, (before, edit) in enumerate(zip([None, *edits], edits, strict=False), 1)
        }
        compared += sum(len(edits) - 1 for edits in pages.values())
    assert compared > 200, "the logs hold too few edits of the same page"


def lines(edit: Row | None) -> list[str]:
    return edit["text"].split("\n") if edit and edit["text"] else []


def naive_changes(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    return surplus(new, old), surplus(old, new)


def surplus(some: list[str], others: list[str]) -> list[str]:
    """The lines that occur more often in `some`, from the first occurrence that is too many."""
    known, seen, found = Counter(others), Counter[str](), []
    for line in some:
        seen[line] += 1
        if seen[line] > known[line]:
            found.append(line)
    return found
