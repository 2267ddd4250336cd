"""The rule of concurrent edits: public examples of operational transformation, and laws on generated edits."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.library.text.edit_rules import RULES
from tests.library.text.public_edits import PUBLIC
from truelog.text.edit import Change, Edit, Range, after, edit_at, edited


@pytest.mark.parametrize(("text", "first", "second", "expected"), (PUBLIC | RULES).values(), ids=PUBLIC | RULES)
def test_both_authors_see_the_same_text(text: str, first: Edit, second: Edit, expected: str) -> None:
    assert edited(edited(text, first), after(second, first.changes)) == expected
    assert edited(edited(text, second), after(first, second.changes, is_later=False)) == expected


def test_a_removal_into_which_others_insert_has_several_ranges() -> None:
    cut = after(edit_at(1, 8, "!"), [Change(5, 2), Change(8, 3)])
    assert cut == Edit(1, "!", (Range(1, 5), Range(7, 8), Range(11, 14)))
    assert cut.changes == ((1, 1), (12, -3), (8, -1), (2, -4))


@st.composite
def edits(draw: st.DrawFn, length: int, inserted: str) -> Edit:
    """An edit of a text of this length. It inserts nothing, or a part of `inserted`."""
    position = draw(st.integers(0, length))
    removed = draw(st.integers(0, length - position))
    return edit_at(position, removed, inserted[: draw(st.integers(0, len(inserted)))])


TEXT = "abcdefghijklm"  # all characters differ, so that a character shows where it came from


@given(edits(len(TEXT), "XYZ"), edits(len(TEXT), "123"))
def test_law_two_edits_converge_and_keep_what_their_authors_meant(first: Edit, second: Edit) -> None:
    """The property TP1. Nothing but the seen ranges is removed, all insertions stay, and nothing changes its order."""
    there = edited(edited(TEXT, first), after(second, first.changes))
    here = edited(edited(TEXT, second), after(first, second.changes, is_later=False))
    assert here == there
    gone = {place for each in (first, second) for start, end in each.ranges for place in range(start, end)}
    assert [each for each in there if each in TEXT] == [each for n, each in enumerate(TEXT) if n not in gone]
    assert first.inserted in there
    assert second.inserted in there


@dataclass
class Author:
    """A person with an editor: at most one edit is on its way, and the edits of the others are transformed over it."""

    text: str
    seen: int = 0  # revisions of the document
    pending: Edit | None = None
    name: str = ""

    def types(self, chosen: Random) -> Edit:
        position = chosen.randint(0, len(self.text))
        removed = chosen.choice((0, 0, 1, 3, 9))
        edit = edit_at(position, min(removed, len(self.text) - position), self.name * chosen.randint(0, 3))
        self.pending, self.text = edit, edited(self.text, edit)
        return edit

    def receives(self, edit: Edit, *, is_own: bool) -> None:
        """The next edit of the log, as the log applied it."""
        self.seen += 1
        if is_own:
            self.pending = None
            return
        moved = edit if self.pending is None else after(edit, self.pending.changes, is_later=False)
        self.pending = self.pending and after(self.pending, edit.changes)
        self.text = edited(self.text, moved)


@dataclass
class Log:
    """The server: transforms each edit over those since the revision that it was made on."""

    text: str
    history: list[tuple[Author, Edit]] = field(default_factory=list)

    def takes(self, author: Author, base: int, edit: Edit) -> None:
        for _, earlier in self.history[base:]:
            edit = after(edit, earlier.changes)
        self.history.append((author, edit))
        self.text = edited(self.text, edit)


@given(st.randoms(use_true_random=False))
def test_law_an_author_who_applies_own_edits_first_sees_the_text_of_the_log(chosen: Random) -> None:
    log = Log(TEXT)
    authors = [Author(TEXT, name=name) for name in "XYZ"]
    sent: list[tuple[Author, int, Edit]] = []
    for _ in range(chosen.randint(5, 30)):
        author = chosen.choice(authors)
        if chosen.random() < 0.5 and author.pending is None:
            sent.append((author, author.seen, author.types(chosen)))
        elif chosen.random() < 0.5 and sent:
            log.takes(*sent.pop(chosen.randrange(len(sent))))
        elif author.seen < len(log.history):
            by, edit = log.history[author.seen]
            author.receives(edit, is_own=by is author)
    for each in sent:
        log.takes(*each)
    for author in authors:
        for by, edit in log.history[author.seen :]:
            author.receives(edit, is_own=by is author)
    assert [author.text for author in authors] == [log.text] * 3


@given(st.text("a\U0001f600e\u0301\u6771", max_size=12), st.data())
def test_law_places_in_utf16_units_are_transformed_as_places_in_code_points(text: str, data: st.DataObject) -> None:
    first, second = data.draw(edits(len(text), "x\U0001f600")), data.draw(edits(len(text), "\U0001f601y"))
    in_units = after(utf16(text, second), utf16(text, first).changes)
    assert utf16(edited(text, first), after(second, first.changes)) == in_units


def utf16(text: str, edit: Edit) -> Edit:
    """The edit with its places in UTF-16 units. Its inserted text is one character for each unit."""

    def units(part: str) -> int:
        return len(part.encode("utf-16-be")) // 2

    ranges = tuple(Range(units(text[:start]), units(text[:end])) for start, end in edit.ranges)
    return Edit(units(text[: edit.place]), "." * units(edit.inserted), ranges)
