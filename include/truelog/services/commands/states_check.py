"""Checks that the `commands` service has begun to read the states on which commands are decided."""

import psycopg

from truelog.commands import catalogue
from truelog.commands.folding import fold_positions
from truelog.control import event_registry
from truelog.storage.database import connect
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.settings import Settings


def require_begun(settings: Settings) -> None:
    """Raise ServiceDown unless the reader has begun each fold whose event type has states."""
    try:
        with connect(settings) as connection:
            begun = fold_positions.begun(connection)
            usable = catalogue.usable_folds(catalogue.load(), event_registry.load_types(connection))
    except (psycopg.Error, NotSetUp) as error:
        raise ServiceDown(str(error)) from error
    if missing := sorted(usable.keys() - begun):
        raise ServiceDown(f"it has not begun to read {', '.join(missing)}")


def address(_: Settings) -> str:
    return ", ".join(sorted(catalogue.load().folds))
