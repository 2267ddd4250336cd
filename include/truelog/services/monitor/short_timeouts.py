"""Time limits for PostgreSQL, so that a hung or dead server does not block the monitor."""

from typing import Any
from urllib.parse import urlencode

from truelog.support.settings import Settings

_STATEMENT_SECONDS = 10
# These limits detect a dead server: the first limit applies to sent data, the others apply while waiting for an answer.
_TCP_LIMITS = {"tcp_user_timeout": 10_000, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}


class ShortTimeouts(Settings):
    """Settings with time limits for PostgreSQL, so that a hung or dead server does not block the polling."""

    def __init__(self, **given: Any) -> None:  # the signature of Settings; type checkers infer another signature
        super().__init__(**given)

    def database(self) -> dict[str, Any]:
        given = super().database()
        return given | _TCP_LIMITS | {"options": f"{given['options']} -c statement_timeout={_STATEMENT_SECONDS}s"}

    def iceberg(self) -> dict[str, str]:
        given = super().iceberg()
        return given | {"uri": f"{given['uri']}&{urlencode(_TCP_LIMITS)}"}
