"""The time limit of analysts' transactions. `test_lag_service.py` tests the service that applies it."""

import psycopg
import pytest

from tests.library.databases import neighbour
from truelog.limits import analysts as analyst_limit
from truelog.support.settings import Settings


def test_a_transaction_in_another_database_of_the_server_is_spared(postgresql: Settings) -> None:
    """Another Truelog, with another limit, may use that database and has the same roles."""
    limited = postgresql.model_copy(update={"analyst_seconds": 0.001})
    with neighbour(postgresql) as other, analyst(postgresql) as own, analyst(other) as foreign:
        for session in (own, foreign):
            session.execute("SELECT pg_sleep(0.01)")
        analyst_limit.end_long_transactions(limited)
        with pytest.raises(psycopg.errors.AdminShutdown):
            own.execute("SELECT 1")
        assert foreign.execute("SELECT 1").fetchone() == (1,)


def analyst(settings: Settings) -> psycopg.Connection:
    """A session that begins a transaction with its first statement."""
    named = {"user": "analyst", "password": settings.analyst_password.get_secret_value()}
    return psycopg.connect(**settings.database() | named)
