"""The parameters of a subscription."""

from typing import Annotated

from fastapi import Query
from pydantic import Field

from truelog.services.api.rows.parameters import MOST_CONDITIONS, KeyParameter, PinnedVersion, Text


class ChangeParameters(KeyParameter):
    """Which rows to follow, and from where."""

    where: Annotated[
        list[Text],
        Field(
            max_length=MOST_CONDITIONS,
            description="The value of a column of the key: `reader_id=bob`, or `host is NULL`.",
            examples=[["reader_id=bob"]],
        ),
    ] = []  # noqa: RUF012  a model copies its defaults
    version: PinnedVersion = None
    last_event_id: Annotated[
        Text,
        Field(
            description="The id of the last event that the client has. The header `Last-Event-ID` says the same.",
            examples=["2.18.6f1c0c5e-9a53-4a1e-8f0b-3f3c6a8b6d11"],
        ),
    ] = ""
    token: Annotated[
        Text,
        Field(
            description="A scoped token, for `EventSource` of browsers, which sends no header `Authorization`.",
            examples=["eyJhbGciOi…"],
        ),
    ] = ""


Changes = Annotated[ChangeParameters, Query()]
