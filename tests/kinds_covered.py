"""Which kinds of tables have a view, so that a test that runs for each kind fails for a new kind without a view."""

from collections.abc import Iterable

from truelog.tables import kinds
from truelog.tables.kind import Kind
from truelog.views.view import View


def without_view(views: Iterable[View]) -> list[str]:
    """The names of the kinds without a table in any of these views."""
    covered = {type(kind) for view in views for kind in _kinds_of(view)}
    return [type(kind).__name__ for kind in kinds.KINDS if type(kind) not in covered]


def _kinds_of(view: View) -> list[Kind]:
    """The kind of the view's own table, and the kinds of the side tables that any view may have."""
    return [kinds.declared_kind(view), *(kind for kind in kinds.KINDS if kind.further_side_tables(view))]
