"""Run a view's examples in every way: as a batch, as a stream, and as a shuffled stream.

All ways of all examples are cases in one run of the laws' lab, because a Spark job takes a second regardless of its
size.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from psycopg import sql
from psycopg.rows import dict_row

from tests.beds.lab import PARTITIONS, Lab
from tests.laws.events import Record
from tests.laws.with_case import CASE
from tests.views.examples import WAYS, Example, Relations
from truelog import Group, View
from truelog.schema.names import TICKS
from truelog.storage.database import names
from truelog.tables.compiled_view import CompiledView
from truelog.tables.dedupe.compile import SEEN
from truelog.tables.table import Table
from truelog.views.judged import Judged

_MOST = 5  # micro-batches of a run, because each takes seconds

Found = dict[str, Relations]  # by way


@dataclass
class Ways:
    """Runs a view's examples, and keeps the rows, so that each way of each example can be a separate test.

    The first test that needs rows runs all `examples` together. If this run fails, each test runs only its own example,
    so that only the tests of the failing example fail. `unexplained` is the error of the run of all examples, until an
    example also fails alone.
    """

    name: str
    view: View
    examples: Sequence[Example]
    found: dict[Example, Found] = field(default_factory=dict)
    unexplained: Exception | None = None

    def relations(self, lab: Lab, example: Example) -> Found:
        if example not in self.found:
            self._run_together(lab, example.view)
        if example not in self.found:
            self.found |= self._run_alone(lab, example)
        return self.found[example]

    def _run_together(self, lab: Lab, view: View | None) -> None:
        together = [each for each in self.examples if each.view is view]
        self.examples = [each for each in self.examples if each.view is not view]
        try:
            self.found |= self._run(lab, together)
        except Exception as error:  # the code of a view may raise anything
            self.unexplained = error

    def _run_alone(self, lab: Lab, example: Example) -> dict[Example, Found]:
        try:
            return self._run(lab, [example])
        except Exception:
            self.unexplained = None
            raise

    def _run(self, lab: Lab, examples: Sequence[Example]) -> dict[Example, Found]:
        if not examples:
            return {}
        view = examples[0].view or self.view
        lab.compare_all(self.name, view, [log for each in examples for log in _logs(each)])
        return {each: _read(Reader(lab, self.name, view, _clock(each)), n) for n, each in enumerate(examples)}


def _logs(example: Example) -> tuple[list[Record], list[Record]]:
    """The events in their order, and shuffled over several partitions. If they are few, each is a micro-batch."""
    events = [e for e in example.events if e.topic != TICKS]
    shuffled = random.Random(len(events)).sample(events, len(events))
    cuts = [number * min(_MOST, len(events)) // len(events) for number in range(len(events))]
    in_order = [Record(e.topic, 0, e.value, cut, e.second) for cut, e in zip(cuts, events, strict=True)]
    out_of_order = [Record(e.topic, number % 3, e.value, cuts[number], e.second) for number, e in enumerate(shuffled)]
    return in_order, out_of_order


def _clock(example: Example) -> datetime | None:
    """The time of the last tick."""
    return max((e.appended_at for e in example.events if e.topic == TICKS), default=None)


def _read(read: "Reader", number: int) -> Found:
    """The rows of the example with this number: the cases of its two logs follow each other."""
    in_order, shuffled = 2 * number, 2 * number + 1
    return dict(zip(WAYS, (read(in_order), read(in_order, "_streamed"), read(shuffled, "_streamed")), strict=True))


@dataclass(frozen=True)
class Reader:
    """Reads lab cases the way readers see them: the view ordered by key, and relations ordered by their columns.

    Relations see the `clock` as the clock of the log.
    """

    lab: Lab
    name: str
    view: View
    clock: datetime | None = None

    def __call__(self, case: int, streamed: str = "") -> Relations:
        tables = [self._as_shown(each, case, streamed) for each in self.compiled.tables]
        as_shown = sql.SQL("WITH {} ").format(sql.SQL(", ").join(tables))
        named = {"view": "shown"} | {each.side: f"shown_{each.side}" for each in self.compiled.sides}
        named["clock"] = sql.Literal(self.clock).as_string(self.lab.connection)
        queries = {None: sql.SQL("SELECT * FROM shown ORDER BY {}").format(names(list(self.view.key)))} | {
            relation: sql.SQL(f"SELECT * FROM ({select.format(**named)}) AS row ORDER BY row")
            for relation, select in self.view.present.items()
        }
        with self.lab.connection.cursor(row_factory=dict_row) as cursor:
            return {relation: cursor.execute(as_shown + query).fetchall() for relation, query in queries.items()}

    def _as_shown(self, table: Table, case: int, streamed: str) -> sql.Composed:
        """One of the view's tables, as readers see it, without the case."""
        columns = {column: shown for column, shown in table.shown.items() if column != CASE}
        of_case = sql.SQL("{} = {}").format(sql.Identifier(CASE), case)
        if table.side == SEEN:  # no two cases share a partition
            of_case = sql.SQL("partition / {} = {}").format(PARTITIONS, case)
        elif isinstance(self.view, Judged) and table.side == self.view.rules_side:  # rules hold for all cases
            of_case = sql.SQL("{}").format(True)
        elif isinstance(self.view, Group):  # the case is a prefix of the group's first column
            first = self.view.by[0]
            columns[first] = f'substr("{first}", {len(str(case)) + 2})'
            of_case = sql.SQL("{} LIKE {}").format(sql.Identifier(first), f"{case}|%")
        of_case = sql.SQL("{} AND {}").format(of_case, sql.SQL(table.shown_if))
        shown = (sql.SQL("{} AS {}").format(sql.SQL(e), sql.Identifier(c)) for c, e in columns.items())
        return sql.SQL("{} AS (SELECT {} FROM {} WHERE {})").format(
            sql.Identifier(f"shown_{table.side}" if table.side else "shown"),
            sql.SQL(", ").join(shown),
            sql.Identifier("recon", f"{table.name}{streamed}"),
            of_case,
        )

    @cached_property
    def compiled(self) -> CompiledView:
        return self.lab.by_case(self.name, self.view)
