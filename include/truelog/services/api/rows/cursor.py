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

from truelog.services.api.rows.statement import RowQuestion
from truelog.support.errors import BadInput

_LONGEST = 8_192  # characters


@dataclass(frozen=True)
class Cursor:
    """`question` is the hash of the question without the place, so that a cursor continues no other question."""

    question: str
    state: str
    after: tuple[str | None, ...]

    def as_text(self) -> str:
        """The cursor in characters that a URL may have.

        Raises:
            BadInput: the columns of the order have too long values.
        """
        encoded = json.dumps(
            [self.question, self.state, self.after], ensure_ascii=False, separators=(",", ":")
        ).encode()
        text = base64.urlsafe_b64encode(encoded).decode().rstrip("=")
        if len(text) > _LONGEST:
            raise BadInput("a cursor would be too long: order by columns with shorter values")
        return text

    @staticmethod
    def parse(text: str, question: str, places: int) -> "Cursor":
        """The cursor of a page of the same question, whose place has this number of values.

        Raises:
            BadInput: the text is not a cursor, or the cursor of another question.
        """
        try:
            if len(text) > _LONGEST:
                raise ValueError("too long")
            decoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            of, state, after = json.loads(decoded)
            is_cursor = isinstance(state, str) and isinstance(after, list)
            if not is_cursor or not all(each is None or isinstance(each, str) for each in after):
                raise ValueError("not a cursor")
        except (ValueError, TypeError, binascii.Error, RecursionError) as error:
            raise BadInput("it is not a cursor; use `next` of the page before as it is") from error
        if of != question or len(after) != places:
            raise BadInput("the cursor is of another question; repeat the parameters of the page before")
        return Cursor(of, state, tuple(after))


def digest(question: RowQuestion) -> str:
    """The hash of a question without its place and its limit."""
    parts = [question.relation.name, question.conditions, question.columns, question.order]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
