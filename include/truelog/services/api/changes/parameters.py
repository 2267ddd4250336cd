"""The parameters of a subscription."""

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

_MOST_CONDITIONS = 20
_Text = Annotated[str, Field(max_length=8_192)]


class ChangeParameters(BaseModel):
    """Which rows to follow, and from where. An unknown parameter is refused."""

    model_config = ConfigDict(extra="forbid")

    key: Annotated[
        list[_Text],
        Field(max_length=_MOST_CONDITIONS, description="The whole key: one value for each key column, in their order."),
    ] = []
    where: Annotated[
        list[_Text],
        Field(
            max_length=_MOST_CONDITIONS,
            description="The value of a column of the key: `reader_id=bob`, or `host is NULL`.",
        ),
    ] = []
    last_event_id: Annotated[
        _Text,
        Field(description="The id of the last event that the client has. The header `Last-Event-ID` says the same."),
    ] = ""
    token: Annotated[
        _Text,
        Field(description="A scoped token, for `EventSource` of browsers, which sends no header `Authorization`."),
    ] = ""


Changes = Annotated[ChangeParameters, Query()]
