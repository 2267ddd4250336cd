"""Time limits for PostgreSQL, so that a hung or dead server does not block the monitor."""

from typing import Any

from truelog.support.settings import Settings

_STATEMENT_SECONDS = 10
# The first limit applies to sent data, in milliseconds. The others apply while waiting for an answer.
_TCP_LIMITS = {
    "tcp_user_timeout": "10000",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
}


class ShortTimeouts(Settings):
    """Settings with time limits for PostgreSQL, so that a hung or dead server does not block the polling."""

    def __init__(self, **given: Any) -> None:  # the signature of Settings; type checkers infer another signature
        super().__init__(**given)

    def database(self) -> dict[str, Any]:
        given = super().database()
        return given | {"options": f"{given['options']} -c statement_timeout={_STATEMENT_SECONDS}s"}

    def tcp_limits(self) -> dict[str, str]:
        return _TCP_LIMITS
