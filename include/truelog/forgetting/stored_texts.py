"""The texts that the platform stores about its own work, and that may quote a person's data.

What is stored about the rows of a view goes for each view of the erasure: a row may be about the person without naming
it. So does what is stored about the rows of dropped versions, of any view: their topics are no longer known. All other
texts go if one of their words is a subject.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from truelog.control.view_tables import empty_answer, lock_answer, tables_of
from truelog.erasure.erasure import Erasures
from truelog.quality import gx_docs
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables import stage

# What is stored about the rows `r` of a view, and the version that it is about.
_REPORTS = (
    ("DELETE FROM truelog.explanation r WHERE {}", "(r.answer ->> 'version')::integer"),
    ("DELETE FROM truelog.past_question r WHERE {}", "r.version"),
    ("DELETE FROM truelog.repair r WHERE {}", "r.version"),
    (
        "UPDATE truelog.reconciliation r SET sample = '[]', causes = '[]' WHERE {} "
        "AND (r.sample <> '[]' OR r.causes <> '[]')",
        "r.version",
    ),
)
_VALIDATIONS = (
    "SELECT c.id FROM truelog.validation c JOIN truelog.reconciliation r ON r.id = c.reconciliation WHERE {}",
    "r.version",
)
_OF_VIEWS = "r.view = ANY(%s)"
_OF_DROPPED = "NOT EXISTS (SELECT FROM truelog.view v WHERE (v.view, v.version) = (r.view, {}))"


@dataclass(frozen=True)
class _Text:
    """A column that may quote a value. `also_deletes`: the row is deleted, because the text is its key."""

    table: str
    column: str
    also_deletes: bool = False


_TEXTS = (
    _Text("alert", "cause"),
    _Text("batch_refusal", "reason"),
    _Text("certificate_check", "reason"),
    _Text("exclusion", "error"),
    _Text("failed_group", "error"),
    _Text("failed_group", "group", also_deletes=True),
    _Text("invalid_change", "key", also_deletes=True),
    _Text("invalid_change", "reason"),
    _Text("notification", "cause"),
    _Text("operation", "about"),
    _Text("oversized_group", "group", also_deletes=True),
    _Text("past_question", "asked", also_deletes=True),
    _Text("past_question", "said", also_deletes=True),
    _Text("reconciliation", "reason"),
    _Text("silence", "why"),
    _Text("standing", "reason"),
    _Text("topic_status", "reason"),
)


def forget_reports(settings: Settings, connection: Connection, views: Sequence[str]) -> None:
    """Forget what is stored about the rows of these views, of any version. To do it again changes nothing."""
    _forget_reports(settings, connection, _OF_VIEWS, list(views))


def forget_reports_of_dropped(settings: Settings, connection: Connection) -> None:
    """Forget what is stored about the rows of dropped versions. To do it again changes nothing.

    An explanation that was refused is about no version, so it goes too.
    """
    _forget_reports(settings, connection, _OF_DROPPED)


def _forget_reports(settings: Settings, connection: Connection, which: str, *given: object) -> None:
    for statement, version in _REPORTS:
        connection.execute(statement.format(which.format(version)).encode(), given)
    statement, version = _VALIDATIONS
    found = connection.execute(statement.format(which.format(version)).encode(), given).fetchall()
    validations = [int(str(number)) for (number,) in found]
    gx_docs.drop_pages(settings, validations)
    connection.execute("DELETE FROM truelog.validation WHERE id = ANY(%s)", (validations,))


def forget_texts(connection: Connection, erasures: Erasures) -> None:
    """Forget the texts that name a subject. To do it again changes nothing."""
    for each in _TEXTS:
        _forget(connection, erasures, each)
    stage.sweep_all(connection)


def drop_answers(connection: Connection, versions: Sequence[tuple[str, int]]) -> None:
    """Drop the batch answers of streamed views. The duty `answers` builds the answer of a view that needs one again."""
    for view, version in versions:
        tables = tables_of(connection, view, version)
        with connection.transaction():
            lock_answer(connection, tables)
            empty_answer(connection, tables)
            connection.execute("DELETE FROM truelog.batch_answer WHERE (view, version) = (%s, %s)", (view, version))


def _forget(connection: Connection, erasures: Erasures, text: _Text) -> None:
    table, column = sql.Identifier("truelog", text.table), sql.Identifier(text.column)
    names = erasures.has_subject if text.also_deletes else erasures.names_subject  # a number in a key is a value
    rows = connection.execute(sql.SQL("SELECT DISTINCT {}::text FROM {}").format(column, table)).fetchall()
    naming = [str(value) for (value,) in rows if value is not None and names(str(value))]
    if not naming:
        return
    change = "DELETE FROM {}" if text.also_deletes else "UPDATE {} SET {} = 'erased'"
    statement = sql.SQL(change + " WHERE {}::text = ANY(%s)")
    filled = (table, column) if text.also_deletes else (table, column, column)
    connection.execute(statement.format(*filled), (naming,))
