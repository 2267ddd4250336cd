"""Word column: the words of each text of a column, as one text with a space between two words."""

import pyarrow as pa
import pyarrow.compute as pc

from truelog.text.words import words


def word_column(texts: pa.Array) -> pa.Array:
    """The words of each text; NULL if there are none. Only texts with more than ASCII pass through Python."""
    lowered = pc.replace_substring_regex(pc.ascii_lower(texts), "[^a-z0-9]+", " ")
    joined = pc.utf8_trim(lowered, " ")
    is_other = pc.invert(pc.fill_null(pc.string_is_ascii(texts), True))
    if pc.any(is_other, min_count=0).as_py():
        others = texts.filter(is_other).dictionary_encode()
        found = pa.array([" ".join(words(each)) for each in others.dictionary.to_pylist()], pa.string())
        joined = pc.replace_with_mask(joined, is_other, found.take(others.indices))
    return pc.if_else(pc.equal(joined, ""), pa.scalar(None, pa.string()), joined)
