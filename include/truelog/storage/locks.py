"""The advisory locks that sessions hold in PostgreSQL.

During an upgrade, the processes of two releases lock the same keys, so a key never changes. A lock with a name has a
seed, the last argument, and most have a prefix. They keep apart locks whose names may be equal.
"""

from enum import StrEnum


class Locks(StrEnum):
    """The SQL of each key. `%s` is the name of what is locked."""

    ALERTS = "hashtext('truelog.alert')"
    EVENT_VERSIONS = "hashtext('truelog.event_version')"
    ERASURES = "hashtext('truelog.erasure')"  # one erasure at a time
    MIGRATION = "hashtext('truelog.migrate')"
    OUTPUTS = "hashtext('truelog.output')"  # shared by beginnings of outputs; alone, to delete topics without an output
    REPLAY = "hashtextextended('truelog.replay', 0)"
    APPLICATION = "hashtextextended(%s, 0)"  # held with the lease; `views.sql` looks for it
    LAUNCH = "hashtextextended('launch ' || %s, 0)"  # the start and the stop of an application
    DELIVERY = "hashtextextended('tell ' || %s, 0)"  # to a receiver of alerts
    ARCHIVE_TABLE = "hashtextextended(%s, 1)"  # the pointer to its newest version; the name has no space
    ARCHIVE_TURN = "hashtextextended('turn ' || %s, 1)"  # shared by appends; alone, for an erasure that they overtook
    KEYS_IN_USE = "hashtextextended('keys in use ' || %s, 1)"  # the number of keys with a state, of an event type
    COMPARISON = "hashtextextended('reconcile ' || %s, 1)"  # the copies of a view's table
    STAGED_ROWS = "hashtextextended(%s, 2)"  # shared by the sessions that stage rows of a table

    def of(self, name: str) -> str:
        """The key of a name that is SQL, such as a column or another kind of parameter."""
        return self.replace("%s", name)


# Who may take any advisory lock could keep an application from starting, so only the owner may. By these functions,
# processes with roles of their own take two locks that they need, until their transaction ends.
HOLD_REGISTRATIONS = "truelog.hold_registrations()"
HOLD_KEYS_IN_USE = "truelog.hold_keys_in_use(text)"
_FUNCTION = """
    CREATE OR REPLACE FUNCTION {name} RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog
    AS $$ SELECT pg_advisory_xact_lock{kind}({key}) $$;
    REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC
"""


def functions() -> list[bytes]:
    """The statements that create these functions, or replace them."""
    texts = (
        _FUNCTION.format(name=HOLD_REGISTRATIONS, kind="_shared", key=Locks.EVENT_VERSIONS),
        _FUNCTION.format(name=HOLD_KEYS_IN_USE, kind="", key=Locks.KEYS_IN_USE.of("$1")),
    )
    return [text.encode() for text in texts]
