"""Documents: texts that follow from small edits, with checkpoints between the edits."""

import json
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import pytest
from psycopg import sql

from spark_apps.views.document import document
from tests.beds.lab import CASES, Lab
from tests.laws.events import Record
from tests.library.text.public_edits import PUBLIC
from tests.views.examples import Relations, Row, Rows, Sent, at, example, examples, sent
from tests.views.generated import logs_and_relations, without_copies
from tests.views.naive_document import NaiveDocument, units
from tests.views.rows_read import rows_read
from tests.views.ways import Reader
from truelog import View
from truelog.tables import deploy as table
from truelog.text.edit import Edit

EVERY, LONGEST = 10, 40
SAVED = 'SELECT document_id, "offset", number, text FROM {checkpoints}'
SMALL = document(EVERY, LONGEST)
SHOWN = replace(SMALL, present={**SMALL.present, "saved": SAVED})  # one view, because to compile it takes seconds
EMOJI = "\U0001f600"
IDS = count()


def edited(
    position: int, inserted: str | None = None, removed: int = 0, base: int | None = None, **fields: Any
) -> Sent:
    defaults = {"document_id": "d1", "author_id": "ann", "occurred_at": at("10:00:00"), "base_revision": base}
    defaults["event_id"] = f"edit {next(IDS)}"
    return sent("document_edit", position=position, removed=removed, inserted=inserted, **defaults | fields)


def typed(text: str, **fields: Any) -> list[Sent]:
    """An event for each keystroke."""
    return [edited(position, character, **fields) for position, character in enumerate(text)]


def made_on(base: int, edit: Edit) -> Sent:
    """The edit as an event, made on a revision."""
    return edited(edit.place, edit.inserted, sum(end - start for start, end in edit.ranges), base)


def texts(rows: list[Row]) -> list[str]:
    return [row["text"] for row in rows]


@example([*typed("helo wrld"), edited(2, "l"), edited(7, "o", occurred_at=at("10:05:00"))], in_order=True, view=SHOWN)
def test_a_document_is_the_result_of_its_edits(rows: Rows) -> None:
    assert [(row["text"], row["characters"], row["edits"], row["edited_at"]) for row in rows] == [
        ("hello world", 11, 11, at("10:05:00"))
    ]


@example([edited(0, "hello world"), edited(5, ", my", 1), edited(0, "H", 1)], in_order=True, view=SHOWN)
def test_an_edit_may_replace_text(rows: Rows) -> None:
    assert texts(rows) == ["Hello, myworld"]


@example([*typed("one"), *typed("two", document_id="d2")], in_order=True, view=SHOWN)
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
    view=SHOWN,
)
def test_a_position_beyond_the_end_means_the_end(rows: Rows, expected: str) -> None:
    assert texts(rows) == [expected]


@example([edited(0, "a\U0001f600e\u0301z"), edited(3, "x"), edited(1, "", 1)], in_order=True, view=SHOWN)
def test_positions_count_code_points(rows: Rows) -> None:
    """An edit may take a character and its accent apart."""
    assert texts(rows) == ["aex\u0301z"]


@example([edited(0, "a" * LONGEST), edited(3, "b"), edited(3, "bc", 2), edited(0, "d", 1)], in_order=True, view=SHOWN)
def test_an_edit_that_makes_the_text_too_long_changes_nothing(rows: Rows) -> None:
    [row] = rows
    assert (row["text"], row["characters"], row["edits"]) == ("daabc" + "a" * (LONGEST - 5), LONGEST, 4)


PUBLISHED = {
    name: ([*typed(text), made_on(len(text), first), made_on(len(text), second)], expected)
    for name, (text, first, second, expected) in PUBLIC.items()
}
ISSUED = {"an insertion and the end": ([*typed("abc"), edited(1, "X", base=3), edited(3, "Y", base=3)], "aXbcY")}


AGAIN = edited(0, "ab", base=0)


@example([AGAIN, AGAIN, edited(2, "c", base=1)], in_order=True, view=SHOWN)
def test_an_edit_that_is_sent_again_counts_once(rows: Rows) -> None:
    assert [(row["text"], row["edits"]) for row in rows] == [("abc", 2)]


@examples(PUBLISHED | ISSUED, in_order=True, view=SHOWN)
def test_concurrent_edits_do_what_their_authors_meant(rows: Rows, expected: str) -> None:
    assert texts(rows) == [expected]


LATE = [edited(0, "-", base=n) for n in range(12)]
CUT = [edited(0, "abcdefghij"), *(edited(n, ".", base=1) for n in range(1, 10)), edited(0, None, 10, base=1)]
BESIDE = [edited(n, ".", base=1) for n in range(1, 9)]  # the last range of the removal is beyond the end
CUT_BEYOND = [edited(0, "abcdefgh"), *BESIDE, edited(0, None, 1), edited(0, None, 100, base=1)]
PAIR = [edited(0, f"a{EMOJI}b"), edited(2, "x", base=1, unit="utf16")]
REFUSED = {
    "old": (
        [*LATE, edited(0, "c", base=1)],
        "-" * 12,
        "it was made on revision 1, but an edit may be at most 10 behind, and the document is at 12",
    ),
    "cut": (CUT, "a.b.c.d.e.f.g.h.i.j", "other edits cut what it removes into more than 8 parts"),
    "cut beyond the end": (CUT_BEYOND, ".b.c.d.e.f.g.h.", "other edits cut what it removes into more than 8 parts"),
    "split": (PAIR, f"a{EMOJI}b", "its position or its end is within a surrogate pair"),
    "long": ([edited(0, "a" * 40), edited(0, "b", base=1)], "a" * 40, "the text would have more than 40 characters"),
    "applied": ([*LATE, edited(0, "c", base=2)], "-" * 10 + "c" + "-" * 2, None),
    "applied on a later revision": ([*typed("ab"), edited(0, "c", base=3)], "cab", None),
}


@examples({name: (events, (text, why)) for name, (events, text, why) in REFUSED.items()}, in_order=True, view=SHOWN)
def test_an_edit_that_is_refused_changes_nothing_and_says_why(rows: Rows, expected: tuple[str, str | None]) -> None:
    [row] = rows
    assert (row["text"], row["refused"]) == expected
    assert row["recent_refusals"][-1] == (expected[1] or "")


WIDE = [edited(0, f"a{EMOJI}b"), edited(1, EMOJI, base=1), edited(3, "y", 1, base=1, unit="utf16", author_id="bob")]


@example([*WIDE, edited(1, "c", base=0), edited(0, "late", base=1)], in_order=True, view=SHOWN)
def test_readers_see_the_steps_of_the_last_edits_in_both_units(relations: Relations) -> None:
    columns = ("revision", "step", "position", "removed", "utf16_position", "utf16_removed", "inserted", "refused")
    found = [tuple(row[name] for name in columns) for row in relations["recent_edits"]]
    assert found == [
        (1, 1, 0, 0, 0, 0, f"a{EMOJI}b", None),
        (2, 1, 1, 0, 1, 0, EMOJI, None),
        (3, 1, 3, 0, 5, 0, "y", None),
        (3, 2, 4, 1, 6, 1, "", None),
        (4, 1, 4, 0, 6, 0, "c", None),
        (5, 1, 0, 0, 0, 0, "late", None),
    ]
    assert texts(relations["snapshots"])[2:] == [f"a{EMOJI * 2}y", f"a{EMOJI * 2}yc", f"latea{EMOJI * 2}yc"]


@example([*typed("ab"), *typed("c", author_id="bob", document_id="d2"), edited(0, None, 1)], in_order=True, view=SHOWN)
def test_the_history_of_a_document_and_its_text_after_each_edit(relations: Relations) -> None:
    history = [(row["document_id"], row["offset"], row["removed"], row["inserted"]) for row in relations["history"]]
    assert history == [
        ("d1", 0, 0, "a"),
        ("d1", 1, 0, "b"),
        ("d1", 3, 1, ""),
        ("d2", 2, 0, "c"),
    ]
    assert texts(relations["snapshots"]) == ["a", "ab", "b", "c"]


@example([*typed("abcdefghijklmnopqrstuv"), *typed("0123456789ABC", document_id="d2")], in_order=True, view=SHOWN)
def test_checkpoints_lie_after_every_tenth_edit_however_the_log_is_cut(relations: Relations) -> None:
    """`batch` folds all edits at once, and `stream` folds them in batches that end elsewhere."""
    saved = [(row["document_id"], row["offset"], row["number"], row["text"]) for row in relations["saved"]]
    assert saved == [
        ("d1", 9, 10, "abcdefghij"),
        ("d1", 19, 20, "abcdefghijklmnopqrst"),
        ("d2", 31, 10, "0123456789"),
    ]


def test_a_snapshot_reads_the_edits_since_the_checkpoint_before_it(lab: Lab, view: View) -> None:
    """Ten documents have 1,000 edits each, with a checkpoint after every hundredth."""
    compiled = lab.compiled(f"document_{uuid.uuid4().hex[:8]}", view)
    table.deploy_table(lab.connection, compiled)
    place = "INSERT INTO {} (document_id, topic, partition, \"offset\", %s) SELECT 'd' || n %% 10, 't', 0, n, %s "
    edits = place % ("position, removed, inserted", "0, 0, 'a'") + "FROM generate_series(0, 9999) AS n"
    changes = "(SELECT array_agg(r) FROM generate_series(n / 10 - 98, n / 10 + 1) AS r), array_fill(0, ARRAY[100])"
    saved = (
        place
        % (
            "number, text, recent_revisions, recent_places, recent_sizes",
            f"n / 10 + 1, 'b', {changes}, array_fill(1, ARRAY[100])",
        )
        + "FROM generate_series(0, 9999) AS n WHERE (n / 10 + 1) % 100 = 0"
    )
    sides = {each.side: each.name for each in compiled.sides}
    for side, insert in (("inputs", edits), ("checkpoints", saved)):
        state = sql.Identifier("state", sides[side])
        lab.connection.execute(sql.SQL(insert).format(state))
        lab.connection.execute(sql.SQL("VACUUM ANALYZE {}").format(state))
    select = "SELECT text FROM {} WHERE document_id = 'd7' AND \"offset\" = 5557"
    query = sql.SQL(select).format(sql.Identifier("views", f"{compiled.name}_snapshots"))

    assert lab.connection.execute(query).fetchall() == [("a" * 56 + "b",)]
    assert 56 < rows_read(lab, query) < 70


def test_generated_logs_give_the_documents_of_a_naive_loop(lab: Lab, name: str) -> None:
    concurrent = 0
    for events, found in logs_and_relations(lab, name, SHOWN):
        expected = naive_documents([*without_copies(SHOWN, events)])
        assert found_documents(found) == {document: summary(each) for document, each in expected.items()}
        concurrent += sum(
            row["base_revision"] is not None and row["step"] == 1 and row["base_revision"] < row["revision"] - 1
            for row in found["recent_edits"]
        )
    assert concurrent > CASES / 4, "the logs hold too few concurrent edits"


@pytest.mark.nightly
def test_law_authors_who_type_at_once_make_the_same_text_in_both_units(lab: Lab, name: str) -> None:
    """Each log is streamed and rebuilt, once in code points and once in any units."""
    chosen = Random(30)
    drawn = [twin for _ in range(30) for twin in typed_at_once(chosen)]
    assert lab.compare_all(name, SHOWN, drawn).unequal == 0
    read, wide, refused = Reader(lab, name, SHOWN), 0, 0
    for case in range(0, len(drawn), 2):
        expected = NaiveDocument(EVERY, LONGEST)
        for record in drawn[case]:
            expected.add(json.loads(record.value or b""))
        for number, way in ((case, ""), (case, "_streamed"), (case + 1, ""), (case + 1, "_streamed")):
            found = read(number, way)
            assert found_documents(found) == {"d1": summary(expected)}
            assert {row["number"]: row["text"] for row in found["saved"]} == {
                revision: expected.texts[revision] for revision in (10, 20, 30)
            }
        wide += units(expected.text) > len(expected.text)
        refused += sum(expected.refused)
    assert wide > 15
    assert 0 < refused < 300, "few edits should be too old"


def typed_at_once(chosen: Random) -> Iterator[list[Record]]:
    """A log of edits that were made on earlier revisions, in code points; and the same in the units of each author."""
    known, logs, cut = NaiveDocument(EVERY, LONGEST), tuple[list[Record], list[Record]](([], [])), 0
    for _ in range(30):
        base = max(known.revision - chosen.choice((0, 0, 1, 2, 3, 8, 13)), 0)
        text = known.texts[base]
        position = chosen.randint(0, len(text))
        inserted = "".join(chosen.choices(f"ab{EMOJI}\u0301", k=chosen.randint(0, 4)))
        removed = chosen.choice((0, 0, 1, 2, 9))
        edit = {"position": position, "removed": removed, "inserted": inserted, "base_revision": base, "unit": None}
        beyond = max(position + removed - len(text), 0)
        gone = units(text[position : position + removed]) + beyond
        in_units = {"position": units(text[:position]), "removed": gone}
        known.add(edit)
        cut += chosen.random() < 0.1
        for log, fields in zip(logs, ({}, chosen.choice(({}, in_units | {"unit": "utf16"}))), strict=True):
            common = {"document_id": "d1", "author_id": "ann", "event_id": f"edit {next(IDS)}"}
            log.append(Record("document_edit", 0, sent("document_edit", **common | edit | fields).value, cut))
    yield from logs


def naive_documents(events: list[Row]) -> dict[str, NaiveDocument]:
    found = defaultdict[str, NaiveDocument](lambda: NaiveDocument(EVERY, LONGEST))
    for edit in sorted(events, key=lambda each: (each["partition"], each["offset"])):
        found[edit["document_id"]].add(edit)
    return found


def summary(known: NaiveDocument) -> tuple[object, ...]:
    """What a document says: its text and revision, the text after each edit, and what the last edits changed."""
    last = [each for each in known.made if each.revision > known.revision - known.every]
    changes = [(each.revision, *each.change, *each.utf16) for each in last]
    return known.text, known.revision, units(known.text), known.texts[1:], changes, known.refused[-known.every :]


def found_documents(found: Relations) -> dict[str, tuple[object, ...]]:
    """The same of the documents in the view's relations."""
    snapshots = defaultdict[str, list[Row]](list)
    for row in found["snapshots"]:
        snapshots[row["document_id"]].append(row)
    steps = defaultdict[str, list[tuple[int, ...]]](list)
    refused = defaultdict[str, dict[int, bool]](dict)
    for row in found["recent_edits"]:
        refused[row["document_id"]][row["revision"]] = row["refused"] is not None
        if row["step"]:
            size, wide = (
                (-row["removed"], -row["utf16_removed"])
                if row["removed"]
                else (len(row["inserted"]), units(row["inserted"]))
            )
            steps[row["document_id"]].append((row["revision"], row["position"], size, row["utf16_position"], wide))
    return {
        row["document_id"]: (
            row["text"],
            row["edits"],
            row["utf16_units"],
            texts(sorted(snapshots[row["document_id"]], key=lambda each: (each["partition"], each["offset"]))),
            steps[row["document_id"]],
            [refused[row["document_id"]][revision] for revision in sorted(refused[row["document_id"]])],
        )
        for row in found[None]
    }
