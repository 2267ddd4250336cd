"""A naive evaluator of searches: it tries each search on each text, word by word, without an index."""

from collections.abc import Mapping
from random import Random

from truelog.searches.query import All, Any, Beginning, Not, Phrase, Query
from truelog.text.words import words

WORDS = ("log", "Logs", "LOGÉ", "down", "up", "Straße", "strasse", "kafka", "東京", "नमस्ते", "e\u0301te", "x-ray")
SEPARATORS = (" ", ", ", "  ", "\u00a0", "-", "/", "\n", "… ")


def fits(query: Query, texts: Mapping[str, str]) -> bool:
    """Whether the texts of an event fit a query."""
    if isinstance(query, Not):
        return not fits(query.part, texts)
    if isinstance(query, All):
        return not [part for part in query.parts if not fits(part, texts)]
    if isinstance(query, Any):
        return bool([part for part in query.parts if fits(part, texts)])
    sought = [text for field, text in texts.items() if query.field in (None, field)]
    return any(_has(words(text), query) for text in sought)


def _has(found: list[str], term: Phrase | Beginning) -> bool:
    for begin in range(len(found)):
        if isinstance(term, Beginning):
            if found[begin][: len(term.text)] == term.text:
                return True
        elif tuple(found[begin : begin + len(term.words)]) == term.words:
            return True
    return False


def draw_text(chosen: Random) -> str:
    """A text of a few words, so that many searches fit it."""
    parts = (chosen.choice(WORDS) + chosen.choice(SEPARATORS) for _ in range(chosen.randint(0, 6)))
    return "".join(parts)


def draw_query(chosen: Random, depth: int = 0) -> str:
    """The text of a query. Some queries are refused, because they have no required word."""
    kind = chosen.random()
    if depth > 2 or kind < 0.4:
        return _term(chosen)
    if kind < 0.55:
        return f"NOT {draw_query(chosen, depth + 1)}"
    joined = chosen.choice((" ", " AND ", " OR ")).join(draw_query(chosen, depth + 1) for _ in range(2))
    return f"({joined})"


def _term(chosen: Random) -> str:
    field, kind, word = chosen.choice(("", "", "text:")), chosen.random(), chosen.choice(WORDS)
    if kind < 0.2:
        return f'{field}"{word} {chosen.choice(WORDS)}"'
    if kind < 0.4 and "-" not in word:
        return f"{field}{word[: chosen.randint(2, 3)]}*"
    return f"{field}{word}"
