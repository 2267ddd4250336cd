"""Dead letters: a bad event may name a person anywhere, so each of its words may be the value of any field."""

import base64
import json
from collections.abc import Collection

from truelog.erasure.subject import Named, named_in_text

DEAD_LETTER = "dead_letter"


def named_in_letter(fields: Collection[str], value: bytes) -> set[Named]:
    """The values of these fields that a dead letter may name, in the posted bytes and in the reason."""
    return named_in_text(fields, value) | named_in_text(fields, _posted(value))


def _posted(value: bytes) -> bytes:
    """The posted bytes of a dead letter; none if the record is something else."""
    try:
        return base64.b64decode(json.loads(value)["raw"], validate=True)
    except (ValueError, TypeError, KeyError, RecursionError):
        return b""
