"""Functions: `truelog.words` and its relatives in PostgreSQL, which follow the same rule as `truelog.text.words`."""

import unicodedata
from functools import cache
from pathlib import Path

from truelog.text.characters import char_class, members
from truelog.text.words import NOT_COMPARED

_FILE = Path(__file__).with_name("words.sql")
_LAST_CASED = 0x1F000  # no later character of Unicode 14 has a case


@cache
def word_functions() -> bytes:
    """Statements that replace the functions. They contain the classes, as PostgreSQL has its own."""
    texts = {name: char_class(name) for name in ("assigned", "spaced", "unspaced", "mark")}
    pairs = [(each, each.casefold()) for each in members("assigned", _LAST_CASED) if _is_cased(each)]
    capitals, small = map("".join, zip(*pairs, strict=True))
    statements = _FILE.read_text()
    for name, text in (texts | {"not_compared": NOT_COMPARED, "capitals": capitals, "small": small}).items():
        statements = statements.replace(f"<{name}>", text)
    return statements.encode()


def _is_cased(char: str) -> bool:
    """Whether case folding replaces a character of the form NFKD by one other. Only `ß` and `ẞ` become two."""
    folded = char.casefold()
    return folded != char and len(folded) == 1 and unicodedata.normalize("NFKD", char) == char
