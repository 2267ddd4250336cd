"""Watched view: what the database knows of a view that a row rule is about."""

import re

from truelog.patterns.expression import BOOLEAN, NUMBER, TEXT
from truelog.storage import db_snapshot
from truelog.storage.database import Connection, read_value
from truelog.support.errors import BadInput

_NUMBERS = re.compile(r"smallint|integer|bigint|real|double precision|numeric")
_PUBLISHES = (
    "SELECT EXISTS (SELECT FROM truelog.published_place JOIN truelog.deployed USING (view, version) WHERE view = %s)"
)


def columns(connection: Connection, view: str) -> dict[str, str]:
    """The types of the columns that conditions may name. A time is a text, as in the rows of notifications.

    Raises:
        BadInput: the view is not deployed, or does not publish its changes.
    """
    known = db_snapshot.view_columns(connection, view)
    if not known:
        raise BadInput(f"there is no view {view}, or its stream has not run yet: see `truelog status`")
    if not read_value(connection, _PUBLISHES, (view,)):
        raise BadInput(f"{view} does not publish its changes: declare it with publish=True (docs/outputs.md)")
    return {str(each["name"]): _type(str(each["type"])) for each in known}


def _type(of_column: str) -> str:
    return BOOLEAN if of_column == "boolean" else NUMBER if _NUMBERS.match(of_column) else TEXT
