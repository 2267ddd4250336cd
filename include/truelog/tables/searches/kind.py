"""The kind of views whose rows are hits of stored searches: their rules are searches."""

from truelog.tables.compiled_view import Compiling
from truelog.tables.patterns.judging import compile_judged
from truelog.tables.patterns.kind import Judged
from truelog.tables.searches import searching
from truelog.tables.table import Table
from truelog.views import searches
from truelog.views.view import View


class Searches(Judged):
    """The rows are hits of searches."""

    def is_declared_by(self, view: View) -> bool:
        return isinstance(view, searches.Searches)

    def compile(self, compiling: Compiling) -> Table:
        if compiling.side:
            return super().compile(compiling)
        return compile_judged(compiling, searching.ROWS, searching.compile_searching)
