"""The settings of Truelog's own services: their addresses and limits.

`TRUELOG_<SERVICE>_HOST` and `TRUELOG_<SERVICE>_PORT` are the address of a service. `truelog.services` declares the
services. The settings lie below them and do not know their names, so any name may be that of a service. Set-up refuses
names in the settings file that no service has.
"""

import os
import re
from collections.abc import Collection
from ipaddress import ip_network
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    SecretStr,
)
from pydantic_settings import BaseSettings

from truelog.support.origins import require_origin

_VARIABLE = re.compile(r"truelog_(?P<field>(?P<service>\w+)_(?P<part>host|port))")


class Address(BaseModel):
    """Where a service listens. Port 0 means that set-up has not chosen a port."""

    model_config = ConfigDict(frozen=True)

    host: str = "127.0.0.1"
    port: int = 0


def _networks(text: str) -> str:
    """Check that the text lists IP addresses and networks, separated by commas."""
    for each in filter(None, text.split(",")):
        ip_network(each.strip())
    return text


def _origins(text: str) -> str:
    """Check that the text lists origins of web pages, such as https://shop.example, separated by commas."""
    for each in filter(None, text.split(",")):
        require_origin(each.strip())
    return text


# A dead letter contains the event in base64, which takes a third more space. Kafka accepts one megabyte.
MOST_EVENT_BYTES = 700_000


class ServiceSettings(BaseSettings):
    """The settings of the services. `Settings` has these and all others."""

    services: dict[str, Address] = {}  # the addresses of Truelog's own services

    collector_event_bytes: PositiveInt = Field(default=512 * 1024, le=MOST_EVENT_BYTES)
    collector_body_bytes: PositiveInt = 4 * 2**20
    collector_body_events: PositiveInt = 10_000
    collector_body_seconds: PositiveFloat = 30.0  # time limit for receiving a body
    collector_header_seconds: PositiveFloat = 10.0  # time limit for receiving the headers of a request
    collector_room_requests: PositiveInt = 256  # requests in progress at once
    collector_room_bytes: PositiveInt = 64 * 2**20  # total size of their bodies in bytes
    collector_key_share: float = Field(default=0.5, gt=0, le=1)  # the largest share of this room for one API key
    # Dead letters per second that one API key may cause. At once, it may cause `collector_body_events` dead letters.
    collector_key_dead_letters: PositiveFloat = 50.0
    # Events per second that one address may send with the keys of browsers. At once, it may send 50 times as many.
    collector_browser_events: PositiveFloat = 20.0
    collector_acknowledge_seconds: PositiveFloat = 10.0  # time limit for Kafka's acknowledgement
    collector_command_seconds: PositiveFloat = 1.0  # how long an answer to a command waits for coordinates
    command_waiting_events: PositiveInt = 100_000  # events of accepted commands that may wait for the log
    collector_rate_limit: bool = False  # refuse addresses that are over their policy or blocked (docs/rate-limits.md)
    # Addresses and networks of proxies whose X-Forwarded-For header names the sender, separated by commas.
    collector_trusted_proxies: Annotated[str, AfterValidator(_networks)] = ""

    # The database user of the API has `api_password`. These are the API's other settings.
    api_token_secret: SecretStr = SecretStr("")  # signs the scoped tokens
    api_origins: Annotated[str, AfterValidator(_origins)] = ""  # of pages that may call the API, separated by commas
    api_connections: PositiveInt = Field(default=8, le=40)  # for rows, of one process; a key may hold half of them
    api_requests: PositiveInt = 256  # in progress at once; a key may hold half of them
    api_token_requests: PositiveInt = 16  # in progress at once with one scoped token
    api_subscribers: PositiveInt = 2_000  # of changes, at once; a key may hold three quarters of them
    api_token_subscribers: PositiveInt = 16  # of changes, at once with one scoped token
    api_subscriber_rows: PositiveInt = Field(default=10_000, le=100_000)  # with which a subscriber may begin
    api_subscriber_bytes: PositiveInt = 16 * 2**20  # of these rows, or of the changes with which it goes on
    api_rows: PositiveInt = Field(default=1_000, le=10_000)  # in an answer
    api_answer_bytes: PositiveInt = 8 * 2**20  # of the rows in an answer; a single row may have more
    api_statement_seconds: PositiveFloat = 2.0  # time limit of a statement
    api_wait_seconds: NonNegativeFloat = 10.0  # the longest wait for a position token
    api_token_seconds: PositiveInt = Field(default=900, le=900)  # the longest life of a scoped token
    api_past_questions: PositiveInt = 16  # about the past of views, that wait at once; a key may have half of them
    api_past_seconds: PositiveInt = 600  # time limit for the rebuild of a past
    api_past_read_seconds: PositiveInt = 30  # time limit for reading the rows of a past
    api_past_keep_seconds: PositiveInt = 3_600  # how long an answer about the past is kept
    api_past_rows: PositiveInt = Field(default=10_000, le=100_000)  # in all pages of an answer about the past


def in_environment(fields: Collection[str]) -> dict[str, str]:
    """The variables of services. Those of a field of the settings, such as the database's, are left out."""
    variables = {name.lower(): value for name, value in os.environ.items()}
    return {
        name: value
        for name, value in variables.items()
        if (found := _VARIABLE.fullmatch(name)) and found["field"] not in fields
    }


def gathered(values: dict[str, Any]) -> dict[str, Any]:
    """The same values, with the variables of each service under its name in `services`."""
    found = {name: match for name in values if (match := _VARIABLE.fullmatch(name))}
    services: dict[str, Any] = {}
    for name, match in found.items():
        services.setdefault(match["service"], {})[match["part"]] = values[name]
    others = {name: value for name, value in values.items() if name not in found}
    return others | {"services": services | others.get("services", {})}
