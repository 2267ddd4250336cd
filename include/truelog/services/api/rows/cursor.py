"""Cursors: where a walk over pages continues, and the state of the view in which it began.

A walk shows one state of the view. If the view has changed since the page before, the next page is refused, unless the
client allows that with `moving`. A cursor is a keyset: the place of the last row. It is a number of rows only in an
answer about the past, which does not change.
"""

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass

from truelog.services.api.problem import Kind, Problem
from truelog.services.api.rows.statement import RowQuestion
from truelog.support.errors import BadInput

_LONGEST = 8_192  # characters
_NO_CURSOR = "it is not a cursor; use `next` of the page before as it is"


@dataclass(frozen=True)
class Cursor:
    """`question` is the hash of what was asked without the place, so that a cursor continues no other question.

    basis: the hash of what a place refers to, which may differ between versions of the view: the columns of the order,
    or the stored question about the past.
    """

    question: str
    basis: str
    state: str
    after: tuple[str | None, ...]

    def as_text(self) -> str:
        """The cursor in characters that a URL may have.

        Raises:
            BadInput: the columns of the order have too long values.
        """
        encoded = json.dumps(
            [self.question, self.basis, self.state, self.after], ensure_ascii=False, separators=(",", ":")
        ).encode()
        text = base64.urlsafe_b64encode(encoded).decode().rstrip("=")
        if len(text) > _LONGEST:
            raise BadInput("a cursor would be too long: order by columns with shorter values")
        return text

    @staticmethod
    def parse(text: str, question: str) -> "Cursor":
        """The cursor of a page of the same question, perhaps of another version of the view.

        Raises:
            BadInput: the text is not a cursor, or the cursor of another question.
        """
        try:
            if len(text) > _LONGEST:
                raise ValueError("too long")
            decoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            of, basis, state, after = json.loads(decoded)
            is_cursor = isinstance(basis, str) and isinstance(state, str) and isinstance(after, list)
            if not is_cursor or not all(each is None or isinstance(each, str) for each in after):
                raise ValueError("not a cursor")
        except (ValueError, TypeError, binascii.Error, RecursionError) as error:
            raise BadInput(_NO_CURSOR) from error
        if of != question:
            raise BadInput("the cursor is of another question; repeat the parameters of the page before")
        return Cursor(of, basis, state, tuple(after))

    def require_basis(self, basis: str, places: int) -> None:
        """Require that the place refers to this basis, and has this number of values.

        Raises:
            Problem: 409, it refers to another one, because the reader gets another version now.
            BadInput: the text was not a cursor.
        """
        if self.basis != basis:
            reason = "the reader gets another version of the view than for the page before; begin again"
            raise Problem(409, reason, Kind.MOVED)
        if len(self.after) != places:
            raise BadInput(_NO_CURSOR)


def basis_of(question: RowQuestion) -> str:
    """The hash of the columns of the order, with their types."""
    return digest(*((each, question.relation.types[each.column]) for each in question.order))


def digest(*parts: object) -> str:
    """The hash of the parts of a question."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
