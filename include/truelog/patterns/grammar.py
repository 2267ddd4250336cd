"""The grammar of a pattern, such as `failed{5,} .. (paid | refunded)`: its text, and its tree.

    pattern    = sequence ("|" sequence)*          the first alternative that matches is preferred
    sequence   = item ([".."] item)*               ".." skips events until the next item matches
    item       = (STEP | "(" pattern ")") [quantity ["?"]]
    quantity   = "*" | "+" | "?" | "{n}" | "{n,}" | "{,m}" | "{n,m}"

A quantity prefers many events; with "?" after it, few. A repeat without an upper limit takes an event each time.
"""

import re
from dataclasses import dataclass

from truelog.support.errors import BadInput

MOST_CHARACTERS = 2_000
MOST_DEPTH = 20  # of parentheses
MOST_REPEATS = 1_000

_TOKEN = re.compile(
    r"\s*(?:(?P<step>[A-Za-z_][A-Za-z0-9_]*)|(?P<skip>\.\.)|(?P<quantity>[*+?]|\{[0-9 ,]*\})|(?P<mark>[()|]))"
)
_RANGE = re.compile(r"\{ *([0-9]{0,6}) *(,?) *([0-9]{0,6}) *\}")


@dataclass(frozen=True)
class Step:
    """One event that fits the step of this name."""

    name: str


@dataclass(frozen=True)
class Skip:
    """Any number of events, as few as possible, which do not belong to the match."""


@dataclass(frozen=True)
class Sequence:
    """One item after the other."""

    items: "tuple[Tree, ...]"


@dataclass(frozen=True)
class Choice:
    """One of the alternatives, the first that matches."""

    alternatives: "tuple[Tree, ...]"


@dataclass(frozen=True)
class Repeat:
    """An item several times; `most` is None if there is no limit."""

    item: "Tree"
    least: int
    most: int | None
    is_greedy: bool


Tree = Step | Skip | Sequence | Choice | Repeat


def parse(text: str) -> Tree:
    """The tree of a pattern.

    Raises:
        BadInput: names the character at which the text breaks the grammar.
    """
    if len(text) > MOST_CHARACTERS:
        raise BadInput(f"the pattern has {len(text):,} characters; {MOST_CHARACTERS:,} are the limit")
    parser = _Parser(text, _tokens(text))
    tree = parser.choice(0)
    if parser.kind() is not None:
        raise parser.error("expected the end of the pattern")
    return tree


def steps_of(tree: Tree) -> frozenset[str]:
    """The names of the steps in a tree."""
    match tree:
        case Step(name):
            return frozenset({name})
        case Sequence(parts) | Choice(parts):
            return frozenset().union(*map(steps_of, parts))
        case Repeat(item):
            return steps_of(item)
        case Skip():
            return frozenset()


def _tokens(text: str) -> list[tuple[str | None, str, int]]:
    """The tokens of a text, each with its kind and its first character. The last one has no kind."""
    tokens: list[tuple[str | None, str, int]] = []
    end, at = len(text.rstrip()), 0
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise BadInput(f"character {at + 1}: {text[at]!r} is not part of a pattern")
        kind = str(found.lastgroup)
        tokens.append((kind, found[kind], found.start(kind)))
        at = found.end()
    return [*tokens, (None, "", end)]


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, text: str, tokens: list[tuple[str | None, str, int]]) -> None:
        self.text = text
        self.tokens = tokens
        self.next = 0

    def kind(self) -> str | None:
        return self.tokens[self.next][0]

    def take(self) -> str:
        self.next += 1
        return self.tokens[self.next - 1][1]

    def error(self, reason: str) -> BadInput:
        _, token, at = self.tokens[self.next]
        found = f"found {token!r}" if token else "found the end"
        return BadInput(f"character {at + 1}: {reason}, {found}")

    def is_mark(self, mark: str) -> bool:
        kind, token, _ = self.tokens[self.next]
        return kind == "mark" and token == mark

    def choice(self, depth: int) -> Tree:
        if depth > MOST_DEPTH:
            raise self.error(f"more than {MOST_DEPTH} nested parentheses")
        alternatives = [self.sequence(depth)]
        while self.is_mark("|"):
            self.take()
            alternatives.append(self.sequence(depth))
        return alternatives[0] if len(alternatives) == 1 else Choice(tuple(alternatives))

    def sequence(self, depth: int) -> Tree:
        items = [self.item(depth)]
        while self.kind() in ("step", "skip") or self.is_mark("("):
            if self.kind() == "skip":
                self.take()
                items.append(Skip())
            items.append(self.item(depth))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def item(self, depth: int) -> Tree:
        if self.kind() == "step":
            item: Tree = Step(self.take())
        elif self.is_mark("("):
            self.take()
            item = self.choice(depth + 1)
            if not self.is_mark(")"):
                raise self.error("expected ')'")
            self.take()
        else:
            raise self.error("expected a step or '('")
        return self.quantified(item)

    def quantified(self, item: Tree) -> Tree:
        if self.kind() != "quantity":
            return item
        least, most = self.bounds()
        is_greedy = not (self.kind() == "quantity" and self.tokens[self.next][1] == "?")
        if not is_greedy:
            self.take()
        if self.kind() == "quantity":
            raise self.error("two quantities for one item; use parentheses")
        return Repeat(item, least, most, is_greedy)

    def bounds(self) -> tuple[int, int | None]:
        quantity = self.tokens[self.next][1]
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if quantity in simple:
            self.take()
            return simple[quantity]
        found = _RANGE.fullmatch(quantity)
        if found is None or not (found[1] or found[2]):
            raise self.error("expected {n}, {n,}, {,m} or {n,m}")
        least = int(found[1] or 0)
        most = (int(found[3]) if found[3] else None) if found[2] else least
        if most is not None and (most < least or most == 0):
            raise self.error("the second number must be at least the first, and at least 1")
        if max(least, most or 0) > MOST_REPEATS:
            raise self.error(f"more than {MOST_REPEATS:,} repeats")
        self.take()
        return least, most
