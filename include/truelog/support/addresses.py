"""The addresses of Truelog's own services: `TRUELOG_<SERVICE>_HOST` and `TRUELOG_<SERVICE>_PORT`.

`truelog.services` declares the services. The settings lie below them and do not know their names, so any name may be
that of a service. Set-up refuses names in the settings file that no service has.
"""

import os
import re
from collections.abc import Collection
from typing import Any

from pydantic import BaseModel, ConfigDict

_VARIABLE = re.compile(r"truelog_(?P<field>(?P<service>\w+)_(?P<part>host|port))")


class Address(BaseModel):
    """Where a service listens. Port 0 means that set-up has not chosen a port."""

    model_config = ConfigDict(frozen=True)

    host: str = "127.0.0.1"
    port: int = 0


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
