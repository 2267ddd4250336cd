"""The time limit of analysts' transactions, which no session can switch off.

PostgreSQL lets every session change its own `statement_timeout` and `idle_in_transaction_session_timeout`, so another
session has to apply a limit. A long transaction would keep PostgreSQL from removing old rows.
"""

import logging

import psycopg

from truelog.storage.kept_sessions import kept
from truelog.support.settings import ANALYST, Settings

INTERVAL_SECONDS = 5.0

log = logging.getLogger(__name__)

# `xact_start` is visible because set-up makes the platform's role a member of `analyst`. The role is the server's, and
# another database may have another limit.
_END = """
    SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = %s AND xact_start < now() - make_interval(secs => %s)
"""


def end_long_transactions(settings: Settings) -> None:
    """End the analysts' sessions whose transaction is older than `analyst_seconds`. If PostgreSQL is down, none is."""
    try:
        with kept(settings) as connection:
            role = settings.names.in_postgresql(ANALYST)
            for pid, _ in connection.execute(_END, (role, settings.analyst_seconds)).fetchall():
                log.warning("Ended an analyst's session (process %s) after %g s", pid, settings.analyst_seconds)
    except psycopg.Error as error:
        log.warning("The time limit of analysts was not applied: %s", error)
