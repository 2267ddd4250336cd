"""A naive document: a plain loop over its edits, which keeps every change and every text."""

from dataclasses import dataclass, field
from typing import Any

from truelog.text.edit import MOST_RANGES, Change, Edit, Range, after, edit_at


def units(text: str) -> int:
    """The length of a text in UTF-16 units."""
    return len(text.encode("utf-16-be")) // 2


def before(text: str, at: int) -> str:
    """The text before a place in UTF-16 units."""
    return text.encode("utf-16-be")[: 2 * at].decode("utf-16-be", "ignore")


@dataclass(frozen=True)
class Made:
    """A change by an edit, in both units."""

    revision: int
    change: Change
    utf16: Change


@dataclass
class NaiveDocument:
    """A document of at most `longest` characters. An edit may be at most `every` revisions behind."""

    every: int
    longest: int
    texts: list[str] = field(default_factory=lambda: [""])
    made: list[Made] = field(default_factory=list)
    refused: list[bool] = field(default_factory=list)

    @property
    def revision(self) -> int:
        return len(self.texts) - 1

    @property
    def text(self) -> str:
        return self.texts[-1]

    def add(self, edit: dict[str, Any]) -> None:
        """Apply an event, or refuse it."""
        applied = self._in_code_points(edit)
        self.refused.append(applied is None)
        self.texts.append(self.text)
        for place, size in applied.changes if applied else ():
            start, rest = self.text[:place], self.text[place:]
            done, gone = (applied.inserted, "") if applied and size > 0 else ("", rest[:-size])
            wide = Change(units(start), units(done) - units(gone))
            self.made.append(Made(self.revision, Change(place, size), wide))
            self.texts[-1] = start + done + rest.removeprefix(gone)

    def _in_code_points(self, edit: dict[str, Any]) -> Edit | None:
        """The edit in the text as it is now, or None if it is refused."""
        is_utf16, base = edit["unit"] == "utf16", edit["base_revision"]
        if base is not None and base < self.revision - self.every:
            return None
        moved = edit_at(edit["position"], edit["removed"], edit["inserted"] or "")
        for each in self.made if base is not None else ():
            if each.revision > base and len(moved.ranges) <= MOST_RANGES:
                inserted = moved.inserted
                moved = after(moved, [each.utf16 if is_utf16 else each.change])
                assert moved.inserted == inserted
        if len(moved.ranges) > MOST_RANGES:
            return None
        places = self._places(moved, is_utf16)
        if places is None:
            return None
        ranges = tuple(Range(places[start], places[end]) for start, end in moved.ranges)
        found = Edit(places[moved.place], moved.inserted, tuple(each for each in ranges if each.start < each.end))
        length = len(self.text) + sum(size for _, size in found.changes)
        return found if length <= self.longest else None

    def _places(self, edit: Edit, is_utf16: bool) -> dict[int, int] | None:
        """Each place of the edit in code points, within the text. None if one is within a surrogate pair."""
        named = {edit.place, *(place for each in edit.ranges for place in each)}
        if not is_utf16:
            return {place: min(place, len(self.text)) for place in named}
        starts = {place: before(self.text, place) for place in named}
        whole = all(units(start) == min(place, units(self.text)) for place, start in starts.items())
        return {place: len(start) for place, start in starts.items()} if whole else None
