"""The settings of other systems that Truelog tells of itself, or whose records it reads.

`truelog.support.settings` says where values come from.
"""

import os
from typing import Any

from pydantic import PositiveFloat, SecretStr, model_validator
from pydantic_settings import BaseSettings

_OTEL = "otel_exporter_otlp_"
_SPANS = "spans_"
_PARTS = ("endpoint", "headers")


class SpanSettings(BaseSettings):
    """The receiver of spans (docs/tracing.md).

    Both settings have a second, usual name, `OTEL_EXPORTER_OTLP_…`. It counts only if no source has one of the names
    `TRUELOG_SPANS_…`, so that the headers, a secret, never go to a receiver that is meant for other programs.
    """

    spans_endpoint: str = ""  # such as http://127.0.0.1:4318; without it, there are no spans
    spans_headers: SecretStr = SecretStr("")  # name=value, separated by commas

    @model_validator(mode="before")
    @classmethod
    def _by_usual_names(cls, values: dict[str, Any]) -> dict[str, Any]:
        usual = {part: values[_OTEL + part] for part in _PARTS if _OTEL + part in values}
        others = {name: value for name, value in values.items() if not name.startswith(_OTEL)}
        if any(_SPANS + part in values for part in _PARTS):
            return others
        return others | {_SPANS + part: value for part, value in usual.items()}


def otel_in_environment() -> dict[str, str]:
    """The usual variables for spans in the environment. If they name a receiver, it gets no headers of the file."""
    found = {part: os.environ.get((_OTEL + part).upper()) for part in _PARTS}
    if found["endpoint"] is not None and found["headers"] is None:
        found["headers"] = ""
    return {_OTEL + part: value for part, value in found.items() if value is not None}


class LineageSettings(BaseSettings):
    """The OpenLineage server that gets events about runs (docs/lineage.md)."""

    openlineage_url: SecretStr = SecretStr("")  # such as http://marquez.example:5000; without it, nothing is sent
    openlineage_api_key: SecretStr = SecretStr("")  # sent as a bearer token, if there is one
    openlineage_answer_seconds: PositiveFloat = 5.0  # time limit for the server's answer
    openlineage_running_seconds: PositiveFloat = 3600.0  # interval between the events of a run that goes on
    openlineage_end_seconds: PositiveFloat = 2.0  # how long the end of a process waits for unsent events


class SchemaRegistrySettings(BaseSettings):
    """The schema registry whose framed records producers may write (docs/schema-registry.md)."""

    schema_registry_url: str = ""  # such as https://registry.example:8081; no registry by default
    schema_registry_user: str = ""  # of HTTP's basic authentication
    schema_registry_password: SecretStr = SecretStr("")
    schema_registry_seconds: PositiveFloat = 10.0  # how long the registry may be silent
