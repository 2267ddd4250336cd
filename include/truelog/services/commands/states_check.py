"""Checks that the `commands` service has begun to read the states on which commands are decided."""

import psycopg

from truelog.commands import catalogue
from truelog.commands.folding import fold_positions
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings


def require_begun(settings: Settings) -> None:
    """Raise ServiceDown unless there is a state of each event type that commands need."""
    try:
        with connect(settings) as connection:
            known = fold_positions.statuses(connection)
    except psycopg.Error as error:
        raise ServiceDown(str(error)) from error
    if missing := sorted(catalogue.load().folds.keys() - known.keys()):
        raise ServiceDown(f"it has not begun to read {', '.join(missing)}")


def address(_: Settings) -> str:
    return ", ".join(sorted(catalogue.load().folds))
