"""The language of stored searches: its text, and its tree.

    query   = each ("OR" each)*
    each    = part (["AND"] part)*                 parts beside each other must all be there
    part    = "NOT" part | "(" query ")" | [FIELD ":"] term
    term    = WORD | BEGINNING "*" | '"' WORD* '"'

Operators are in capital letters: `or` is a word. NOT binds most tightly, and OR least. Words are those of
`truelog.text.words`. A text between quotation marks is a phrase: its words follow each other in one field. A beginning
of several pairs of letters, in a script without spaces, is their phrase.

Each text that fits a query has a word of it. A query for which that is not so, such as `NOT kafka`, is refused, because
it would have to be tried on every text.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from truelog.support.errors import BadInput
from truelog.text.words import ends_with_pair, is_unbroken, words

MOST_CHARACTERS = 2_000
MOST_TERMS = 100
MOST_DEPTH = 20  # of parentheses and of NOT
LEAST_BEGINNING = 2  # characters before *

_TOKEN = re.compile(
    r'\s*(?:(?P<mark>[()])|(?:(?P<field>[A-Za-z_][A-Za-z0-9_]*):)?(?:"(?P<phrase>[^"]*)"|(?P<word>[^\s()":]+)))'
)
_OPERATORS = ("AND", "OR", "NOT")


@dataclass(frozen=True)
class Phrase:
    """Words that follow each other in a field; `field` is None if any field will do. Often a single word."""

    words: tuple[str, ...]
    field: str | None = None


@dataclass(frozen=True)
class Beginning:
    """A word with this beginning."""

    text: str
    field: str | None = None


@dataclass(frozen=True)
class All:
    """A text that fits all parts."""

    parts: "tuple[Query, ...]"


@dataclass(frozen=True)
class Any:
    """A text that fits at least one part."""

    parts: "tuple[Query, ...]"


@dataclass(frozen=True)
class Not:
    """A text that does not fit the part."""

    part: "Query"


Query = Phrase | Beginning | All | Any | Not


def parse(text: str, fields: Collection[str]) -> Query:
    """The tree of a query, which may name these fields.

    Raises:
        BadInput: names the character at which the text breaks the language.
    """
    if len(text) > MOST_CHARACTERS:
        raise BadInput(f"the query has {len(text):,} characters; {MOST_CHARACTERS:,} are the limit")
    parser = _Parser(_tokens(text), fields)
    query = parser.any_of(0)
    if parser.token.kind != "end":
        raise parser.error("expected the end of the query")
    if not needs_a_word(query):
        raise BadInput("each text that fits must have a word of the query, and the word must not be after NOT")
    return query


def needs_a_word(query: Query) -> bool:
    """Whether each text that fits has a word, or the beginning of a word, of the query."""
    match query:
        case All(parts):
            return any(map(needs_a_word, parts))
        case Any(parts):
            return all(map(needs_a_word, parts))
        case Not():
            return False
        case _:
            return True


@dataclass(frozen=True)
class _Token:
    """A piece of a query. `kind` is `(`, `)`, an operator, `word`, `phrase` or `end`."""

    kind: str
    text: str
    at: int
    field: str | None = None


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    end, at = len(text.rstrip()), 0
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            reason = "has no second quotation mark" if text[at] == '"' else "is not part of a query here"
            raise BadInput(f"character {at + 1}: {text[at]!r} {reason}")
        tokens.append(_token(found))
        at = found.end()
    return [*tokens, _Token("end", "", end)]


def _token(found: re.Match[str]) -> _Token:
    if found["mark"]:
        return _Token(found["mark"], found["mark"], found.start("mark"))
    kind, field = ("word" if found["phrase"] is None else "phrase"), found["field"]
    at = found.start(kind) if field is None else found.start("field")
    if field is None and found["word"] in _OPERATORS:
        kind = found["word"]
    return _Token(kind, found["word"] or found["phrase"] or "", at, field)


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[_Token], fields: Collection[str]) -> None:
        self.tokens = tokens
        self.fields = fields
        self.next = 0
        self.terms = 0

    @property
    def token(self) -> _Token:
        return self.tokens[self.next]

    def take(self) -> _Token:
        self.next += 1
        return self.tokens[self.next - 1]

    def error(self, reason: str, token: _Token | None = None) -> BadInput:
        wrong = token or self.token
        found = f", found {wrong.text!r}" if wrong.text else ", found the end" if wrong.kind == "end" else ""
        return BadInput(f"character {wrong.at + 1}: {reason}{found}")

    def any_of(self, depth: int) -> Query:
        parts = [self.all_of(depth)]
        while self.token.kind == "OR":
            self.take()
            parts.append(self.all_of(depth))
        return parts[0] if len(parts) == 1 else Any(tuple(parts))

    def all_of(self, depth: int) -> Query:
        parts = [self.part(depth)]
        while self.token.kind not in ("OR", ")", "end"):
            if self.token.kind == "AND":
                self.take()
            parts.append(self.part(depth))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def part(self, depth: int) -> Query:
        if depth > MOST_DEPTH:
            raise self.error(f"more than {MOST_DEPTH} nested parentheses and NOT")
        if self.token.kind == "NOT":
            self.take()
            return Not(self.part(depth + 1))
        if self.token.kind == "(":
            self.take()
            inner = self.any_of(depth + 1)
            if self.token.kind != ")":
                raise self.error("expected ')'")
            self.take()
            return inner
        if self.token.kind not in ("word", "phrase"):
            raise self.error("expected a word, a phrase, NOT or '('")
        return self.term(self.take())

    def term(self, token: _Token) -> Query:
        self.terms += 1
        if self.terms > MOST_TERMS:
            raise self.error(f"more than {MOST_TERMS} words and phrases", token)
        if token.field is not None and token.field not in self.fields:
            raise self.error(f"there is no text field {token.field}; use {', '.join(sorted(self.fields))}", token)
        if token.kind == "word" and token.text.endswith("*"):
            return self.beginning(token)
        found = tuple(words(token.text))
        if not found:
            raise self.error("there is no letter and no digit", token)
        return Phrase(found, token.field)

    def beginning(self, token: _Token) -> Query:
        """The term of a beginning.

        Letters of scripts without spaces are several words, which must follow each other. If the last word may go on,
        a word with this beginning may be anywhere in the field.
        """
        text = token.text[:-1]
        *before, last = words(text) or [""]
        if not last or not is_unbroken(text):
            raise self.error("expected one word before '*'", token)
        if len(before) + len(last) < LEAST_BEGINNING:
            raise self.error(f"expected at least {LEAST_BEGINNING} letters or digits before '*'", token)
        if not before:
            return Beginning(last, token.field)
        if ends_with_pair(text):
            return Phrase((*before, last), token.field)
        return All((Phrase(tuple(before), token.field), Beginning(last, token.field)))
