"""Derived columns: text that a pattern finds in a field, or its words, computed once when a record is decoded.

Streams, the archive and rebuilds read the same column. Without it, each view would compute the text again in each of
them. Derived columns belong to a version of an event type, as its fields do.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from truelog.schema.field import COLUMN_NAME, RESERVED, Field
from truelog.support.errors import BadDeclaration
from truelog.text.word_column import word_column

IS_DERIVED = "derived"  # in the metadata of a column
WORD_RULE = 1  # the number of the rule of `truelog.text.words`; raise it whenever a text has other words
_ONE_BYTE = re.compile(r"(?<!\\)(\\\\)*\\C")  # RE2's \C matches a part of a character


@dataclass(frozen=True)
class Derived:
    """Columns from the named groups of a pattern in RE2's syntax, matched against a text field.

    The columns are NULL if the field is NULL or does not match. A column is NULL if its group is empty.
    `descriptions` documents each column. `lower` lists columns in which ASCII's letters are small, such as hosts.
    """

    source: str
    pattern: str
    descriptions: Mapping[str, str] = field(default_factory=dict, compare=False)
    lower: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the groups. Raises ArrowInvalid if the pattern is not valid, or has a group without a name."""
        found = pc.extract_regex(pa.array([], pa.string()), self.pattern)
        return tuple(each.name for each in found.type)

    def columns(self, texts: pa.Array) -> dict[str, pa.Array]:
        """The columns, one value for each text."""
        matches = pc.extract_regex(texts, self.pattern)
        found = {name: _non_empty(pc.struct_field(matches, [place])) for place, name in enumerate(self.names)}
        return found | {name: pc.ascii_lower(found[name]) for name in self.lower}

    def as_data(self) -> dict[str, Any]:
        lower = {"lower": list(self.lower)} if self.lower else {}  # absent if there is none, as in earlier versions
        return {"source": self.source, "pattern": self.pattern, **lower}


@dataclass(frozen=True)
class DerivedWords:
    """A column with the words of a text field, by the rule of `truelog.text.words`, with a space between two words.

    The column is NULL if the field is NULL or has no words.
    """

    source: str
    name: str
    description: str = field(default="", compare=False)
    rule: int = WORD_RULE

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def descriptions(self) -> Mapping[str, str]:
        return {self.name: self.description}

    def columns(self, texts: pa.Array) -> dict[str, pa.Array]:
        """The column, one value for each text."""
        return {self.name: word_column(texts)}

    def as_data(self) -> dict[str, Any]:
        return {"source": self.source, "words": self.name, "rule": self.rule}


Derivation = Derived | DerivedWords


def from_data(data: Mapping[str, Any]) -> Derivation:
    """The derivation that `as_data` describes."""
    if "words" in data:
        return DerivedWords(data["source"], data["words"], rule=data["rule"])
    return Derived(data["source"], data["pattern"], lower=tuple(data.get("lower", ())))


def _non_empty(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def require_valid(name: str, declared: Iterable[Derivation], fields: Iterable[Field]) -> None:
    """Reject derived columns that cannot be computed, or whose names are taken.

    Raises:
        BadDeclaration: the message names the column or the pattern.
    """
    types = {each.name: each.python_type for each in fields}
    taken = {*types, *RESERVED}
    for each in declared:
        if types.get(each.source) is not str:
            raise BadDeclaration(f"{name}: derived columns come from a text field, and {each.source!r} is not text.")
        for column in _names(name, each):
            if not COLUMN_NAME.fullmatch(column):
                raise BadDeclaration(f"{name}: the group {column!r} is a column; use a-z, 0-9 and _ in its name.")
            if column in taken:
                raise BadDeclaration(f"{name}: there is another column {column!r}; use another name for the group.")
            taken.add(column)


def _names(name: str, declared: Derivation) -> tuple[str, ...]:
    if isinstance(declared, DerivedWords):
        if declared.rule != WORD_RULE:
            raise BadDeclaration(f"{name}: this release finds words by the rule {WORD_RULE}, not {declared.rule}.")
        return declared.names
    if _ONE_BYTE.search(declared.pattern):
        raise BadDeclaration(f"{name}: the pattern {declared.pattern!r} has \\C, which splits characters; use a dot.")
    try:
        names = declared.names
    except pa.ArrowInvalid as error:
        raise BadDeclaration(
            f"{name}: the pattern {declared.pattern!r} cannot be used: {error}. Each group needs a name, "
            "as in (?P<host>…); write (?:…) for a group that is not a column."
        ) from None
    unknown = {*declared.descriptions, *declared.lower} - set(names)
    if not names or unknown:
        what = f"no group {sorted(unknown)[0]!r}" if unknown else "no group"
        raise BadDeclaration(f"{name}: the pattern {declared.pattern!r} has {what}, so it gives no such column.")
    return names
