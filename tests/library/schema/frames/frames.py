"""Frames of a schema registry, written by hand."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def written(schema: Mapping[str, Any], value: Mapping[str, Any]) -> bytes:
    """The value in Avro, without a frame."""
    target = BytesIO()
    fastavro.schemaless_writer(target, dict(schema), dict(value))
    return target.getvalue()
