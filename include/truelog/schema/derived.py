"""Derived columns: text that a pattern finds in a field, computed once when a record is decoded.

Streams, the archive and rebuilds read the same column. Without it, each view would compute the text again in each of
them. Derived columns belong to a version of an event type, as its fields do.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from truelog.schema.field import COLUMN_NAME, RESERVED, Field
from truelog.support.errors import BadDeclaration

IS_DERIVED = "derived"  # in the metadata of a column
_ONE_BYTE = re.compile(r"(?<!\\)(\\\\)*\\C")  # RE2's \C matches a part of a character


@dataclass(frozen=True)
class Derived:
    """Columns from the named groups of a pattern in RE2's syntax, matched against a text field.

    The columns are NULL if the field is NULL or does not match. A column is NULL if its group is empty.
    `descriptions` documents each column.
    """

    source: str
    pattern: str
    descriptions: Mapping[str, str] = field(default_factory=dict, compare=False)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the groups. Raises ArrowInvalid if the pattern is not valid, or has a group without a name."""
        found = pc.extract_regex(pa.array([], pa.string()), self.pattern)
        return tuple(each.name for each in found.type)

    def columns(self, texts: pa.Array) -> dict[str, pa.Array]:
        """The columns, one value for each text."""
        matches = pc.extract_regex(texts, self.pattern)
        return {name: _non_empty(pc.struct_field(matches, [place])) for place, name in enumerate(self.names)}


def _non_empty(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def require_valid(name: str, declared: Iterable[Derived], fields: Iterable[Field]) -> None:
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


def _names(name: str, declared: Derived) -> tuple[str, ...]:
    if _ONE_BYTE.search(declared.pattern):
        raise BadDeclaration(f"{name}: the pattern {declared.pattern!r} has \\C, which splits characters; use a dot.")
    try:
        names = declared.names
    except pa.ArrowInvalid as error:
        raise BadDeclaration(
            f"{name}: the pattern {declared.pattern!r} cannot be used: {error}. Each group needs a name, "
            "as in (?P<host>…); write (?:…) for a group that is not a column."
        ) from None
    unknown = set(declared.descriptions) - set(names)
    if not names or unknown:
        what = f"no group {sorted(unknown)[0]!r}" if unknown else "no group"
        raise BadDeclaration(f"{name}: the pattern {declared.pattern!r} has {what}, so it gives no such column.")
    return names
