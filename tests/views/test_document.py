"""Documents: texts that follow from small edits, with checkpoints between the edits."""

import uuid
from collections import defaultdict
from dataclasses import replace
from typing import Any

from psycopg import sql

from spark_apps.views.document import document
from tests.beds.lab import CASES, PARTITIONS, Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, examples, sent
from tests.views.generated import logs_and_relations, without_copies
from tests.views.rows_read import rows_read
from truelog import View
from truelog.tables import deploy as table
from truelog.tables.dedupe.compile import SEEN

EVERY, LONGEST = 3, 20
SAVED = 'SELECT document_id, "offset", number, text FROM {checkpoints}'
SMALL = document(EVERY, LONGEST)
SHOWN = replace(SMALL, present={**SMALL.present, "saved": SAVED})


def edited(position: int, inserted: str | None = None, removed: int = 0, **fields: Any) -> Sent:
    defaults = {"document_id": "d1", "author_id": "ann", "occurred_at": at("10:00:00")}
    return sent("document_edit", position=position, removed=removed, inserted=inserted, **defaults | fields)


def typed(text: str, **fields: Any) -> list[Sent]:
    """An event for each keystroke."""
    return [edited(position, character, **fields) for position, character in enumerate(text)]


def texts(rows: list[Row]) -> list[str]:
    return [row["text"] for row in rows]


@example([*typed("helo wrld"), edited(2, "l"), edited(7, "o", occurred_at=at("10:05:00"))], in_order=True)
def test_a_document_is_the_result_of_its_edits(rows: Rows) -> None:
    assert [(row["text"], row["characters"], row["edits"], row["edited_at"]) for row in rows] == [
        ("hello world", 11, 11, at("10:05:00"))
    ]


@example([edited(0, "hello world"), edited(5, ", my", 1), edited(0, "H", 1)], in_order=True)
def test_an_edit_may_replace_text(rows: Rows) -> None:
    assert texts(rows) == ["Hello, myworld"]


@example([*typed("one"), *typed("two", document_id="d2")], in_order=True)
def test_documents_are_kept_apart(rows: Rows) -> None:
    assert texts(rows) == ["one", "two"]


LAST = 2**31 - 1
BEYOND = [edited(LAST, "ab"), edited(LAST, "c", LAST), edited(1, None, LAST), edited(LAST, None, 1)]


@examples(
    {
        "inserted": (BEYOND[:1], "ab"),
        "replaced": (BEYOND[:2], "abc"),
        "removed up to the end": (BEYOND[:3], "a"),
        "removed after the end": (BEYOND, "a"),
    },
    in_order=True,
)
def test_a_position_beyond_the_end_means_the_end(rows: Rows, expected: str) -> None:
    assert texts(rows) == [expected]


@example([edited(0, "a\U0001f600e\u0301z"), edited(3, "x"), edited(1, "", 1)], in_order=True)
def test_positions_count_code_points(rows: Rows) -> None:
    """An edit may take a character and its accent apart."""
    assert texts(rows) == ["aex\u0301z"]


@example([edited(0, "a" * LONGEST), edited(3, "b"), edited(3, "bc", 2), edited(0, "d", 1)], in_order=True, view=SHOWN)
def test_an_edit_that_makes_the_text_too_long_changes_nothing(rows: Rows) -> None:
    [row] = rows
    assert (row["text"], row["characters"], row["edits"]) == ("daabc" + "a" * 15, LONGEST, 4)


@example([*typed("ab"), *typed("c", author_id="bob", document_id="d2"), edited(0, None, 1)], in_order=True)
def test_the_history_of_a_document_and_its_text_after_each_edit(relations: Relations) -> None:
    history = [(row["document_id"], row["offset"], row["removed"], row["inserted"]) for row in relations["history"]]
    assert history == [
        ("d1", 0, 0, "a"),
        ("d1", 1, 0, "b"),
        ("d1", 3, 1, ""),
        ("d2", 2, 0, "c"),
    ]
    assert texts(relations["snapshots"]) == ["a", "ab", "b", "c"]


@example([*typed("abcdefgh"), *typed("xyz", document_id="d2")], in_order=True, view=SHOWN)
def test_checkpoints_lie_after_every_third_edit_however_the_log_is_cut(relations: Relations) -> None:
    """`batch` folds all edits at once, and `stream` folds them in batches that end elsewhere."""
    saved = [(row["document_id"], row["offset"], row["number"], row["text"]) for row in relations["saved"]]
    assert saved == [("d1", 2, 3, "abc"), ("d1", 5, 6, "abcdef"), ("d2", 10, 3, "xyz")]


def test_a_snapshot_reads_the_edits_since_the_checkpoint_before_it(lab: Lab, view: View) -> None:
    """Ten documents have 1,000 edits each, with a checkpoint after every hundredth."""
    compiled = lab.compiled(f"document_{uuid.uuid4().hex[:8]}", view)
    table.deploy_table(lab.connection, compiled)
    place = "INSERT INTO {} (document_id, topic, partition, \"offset\", %s) SELECT 'd' || n %% 10, 't', 0, n, %s "
    edits = place % ("position, removed, inserted", "0, 0, 'a'") + "FROM generate_series(0, 9999) AS n"
    saved = (
        place % ("number, text", "n / 10 + 1, 'b'") + "FROM generate_series(0, 9999) AS n WHERE (n / 10 + 1) % 100 = 0"
    )
    sides = [each for each in compiled.sides if each.side != SEEN]
    for side, insert in zip(sides, (edits, saved), strict=True):
        state = sql.Identifier("state", side.name)
        lab.connection.execute(sql.SQL(insert).format(state))
        lab.connection.execute(sql.SQL("VACUUM ANALYZE {}").format(state))
    select = "SELECT text FROM {} WHERE document_id = 'd7' AND \"offset\" = 5557"
    query = sql.SQL(select).format(sql.Identifier("views", f"{compiled.name}_snapshots"))

    assert lab.connection.execute(query).fetchall() == [("a" * 56 + "b",)]
    assert 56 < rows_read(lab, query) < 70


def test_generated_logs_give_the_documents_of_a_naive_loop(lab: Lab, name: str) -> None:
    checkpoints = 0
    for events, found in logs_and_relations(lab, name, SHOWN):
        expected = naive_texts([*without_copies(SHOWN, events)])
        last = {document: edits[-1][1] for document, edits in expected.items()}
        assert {row["document_id"]: row["text"] for row in found[None]} == last
        assert {row["document_id"]: row["edits"] for row in found[None]} == {d: len(e) for d, e in expected.items()}
        snapshots = {
            (row["document_id"], (row["partition"] % PARTITIONS, row["offset"])): row["text"]
            for row in found["snapshots"]
        }
        assert snapshots == {(document, place): text for document, edits in expected.items() for place, text in edits}
        saved = {(row["document_id"], row["number"]): row["text"] for row in found["saved"]}
        assert saved == {
            (document, number): text
            for document, edits in expected.items()
            for number, (_, text) in enumerate(edits, 1)
            if number % EVERY == 0
        }
        checkpoints += len(saved)
    assert checkpoints > CASES / 4, "the logs hold too few edits of the same document"


def naive_texts(events: list[Row]) -> dict[str, list[tuple[tuple[int, int], str]]]:
    """The text of each document after each of its edits, and the place of the edit in the log."""
    found = defaultdict[str, list[tuple[tuple[int, int], str]]](list)
    for edit in sorted(events, key=lambda each: (each["partition"], each["offset"])):
        edits, position = found[edit["document_id"]], edit["position"]
        text = edits[-1][1] if edits else ""
        changed = text[:position] + (edit["inserted"] or "") + text[position + edit["removed"] :]
        edits.append(((edit["partition"], edit["offset"]), changed if len(changed) <= LONGEST else text))
    return found
