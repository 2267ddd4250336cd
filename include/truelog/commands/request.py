"""A request to decide a command, as the collector receives it."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from truelog.commands.catalogue import Catalogue
from truelog.commands.declaration import LONGEST_KEY, Command, Fields
from truelog.schema.record_validation import first_invalid
from truelog.support.errors import BadInput

EXPECTED = "expected_version"
_LONGEST_IDEMPOTENCY_KEY = 255


@dataclass(frozen=True)
class Sender:
    """Who sends a command: the name of the API key, and the idempotency key if the request has one."""

    name: str
    idempotency_key: str | None = None


@dataclass(frozen=True)
class CommandRequest:
    """A valid request. `body_sha256` identifies the command and its body, however the JSON is written."""

    name: str
    command: Command
    fields: Fields
    key: str
    claims: tuple[str, ...]
    expected_version: int | None
    sender: Sender
    body_sha256: bytes


class InvalidCommandError(BadInput):
    """A field of the body is invalid."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field


def parse(catalogue: Catalogue, name: str, body: bytes, sender: Sender) -> CommandRequest:
    """The request that the body describes.

    Raises:
        InvalidCommandError: the body is not valid for the command.
    """
    if sender.idempotency_key is not None and not 0 < len(sender.idempotency_key) <= _LONGEST_IDEMPOTENCY_KEY:
        raise InvalidCommandError(
            "Idempotency-Key", f"an idempotency key has 1 to {_LONGEST_IDEMPOTENCY_KEY} characters"
        )
    values = _object(body)
    command, canonical = catalogue.commands[name], json.dumps([name, values], sort_keys=True)
    expected = values.pop(EXPECTED, None)
    if expected is not None and (type(expected) is not int or expected < 0):
        raise InvalidCommandError(EXPECTED, "the version that the key is expected to have: an integer, at least 0")
    try:
        fields = command.fields.model_validate_json(json.dumps(values))
    except ValidationError as error:
        raise InvalidCommandError(*first_invalid(error)) from None
    key, claims = command.key(fields), tuple(command.claims(fields))
    if any(len(each) > LONGEST_KEY for each in (key, *claims)):
        raise InvalidCommandError("key", f"a key or a claim has at most {LONGEST_KEY} characters")
    body_sha256 = hashlib.sha256(canonical.encode()).digest()
    return CommandRequest(name, command, fields, key, claims, expected, sender, body_sha256)


def _object(body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body.decode(), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise InvalidCommandError("body", f"not JSON: {error}") from None
    if not isinstance(values, dict):
        raise InvalidCommandError("body", "not a JSON object")
    if "\\u0000" in json.dumps(values).replace("\\\\", ""):  # a text may have a backslash before u0000
        raise InvalidCommandError("body", "U+0000 cannot be stored")
    return values


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a duplicate field")
    return found
