"""What the rule of concurrent edits says, as cases like those of `public_edits.py`."""

from truelog.text.edit import edit_at

RULES = {
    "an insertion and the end": ("abc", edit_at(1, inserted="X"), edit_at(3, inserted="Y"), "aXbcY"),
    "the same removal": ("abcd", edit_at(1, 2), edit_at(1, 2), "ad"),
    "overlapping removals": ("abcdef", edit_at(1, 3), edit_at(2, 3), "af"),
    "a removal within a removal": ("abcdef", edit_at(0, 6), edit_at(2, 2), ""),
    "replacements of the same word": ("one two", edit_at(4, 3, "2"), edit_at(4, 3, "II"), "one 2II"),
    "an insertion at the start of a removal": ("abcd", edit_at(1, 2), edit_at(1, inserted="x"), "axd"),
    "an insertion at the end of a removal": ("abcd", edit_at(1, 2), edit_at(3, inserted="x"), "axd"),
}
