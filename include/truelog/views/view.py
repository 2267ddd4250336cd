"""View: a pure function of the events up to given positions, maintained as a table.

A view is one file in `spark_apps/views/`; the file's name is the view's name. The file contains values and a function:

    VIEW = View(reads=("page_view",), transform=transform, key=("minute", "host"), measures={"views": Sum()})

`transform` takes one DataFrame for each topic, in the order of `reads`, and ends in a select of exactly the key and the
measures. It may select, filter, explode and union: a record's contribution must not depend on any other record.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from truelog.measures.measure import Measure
from truelog.schema.names import OUTPUT, TICKS
from truelog.support.durations import seconds
from truelog.support.errors import BadDeclaration
from truelog.views.lateness import EventWindow, is_late
from truelog.views.meaning import Meaning


@dataclass(frozen=True, kw_only=True)
class View:
    """The declaration of a view.

    reads: the event types; each has a topic of the same name.
    key, measures: the columns of a row; key columns may be NULL.
    present: further readable relations, name → SELECT over `{view}`, evaluated when they are read. In it, `{clock}` is
        the log's clock at the view's positions, NULL before the first tick. Other braces stay as they are.
    checks: SQL predicates that are true for every row.
    keep: how long a row stays after the time in its first timestamp key column, by the log's clock ("7 days"). None
        means forever.
    allowed_lateness: how long after its event time an event may reach the log and still count ("1 hour"). None means
        forever. Events that come later are counted in a side table, `views.<view>_dropped`.
    dedupe: for how long an event with the id of an earlier event of its partition is a copy, which does not count
        ("1 hour"; `truelog.tables.dedupe.compile`). None means that each event counts.
    window: the interval of event time that a row describes. Readers then see whether a row is open, complete or
        corrected. The measures need `corrections` (`EventWindow.corrections`).
    about: what the rows are, shown to readers; by default the first paragraph of the view's file.
    columns: the meaning of each column, shown to readers.
    meanings: the same of each further relation, by its name: of what the view presents, and of side tables.
    indexes: further indexes of the table, for the relations that need them: a tuple of stored columns, or the SQL of a
        `tsvector` for full-text search, over columns that readers see, written "{column}".
    batch_only: no stream runs the view. It is rebuilt once a day, and readers see when. For rows that would change too
        often to be merged with every batch.
    owner: whom to ask about the view, such as a team. People see it on the page of the view.
    publish: changed and removed rows also go to the output topic of the view (docs/outputs.md).
    all_if_null: key columns in which NULL means all values. A row with such a NULL already contains other rows, so the
        page *Analytics* does not add it to them.
    hourly_of: a cube with shorter intervals, whose rows this view adds up by the hour. It has some of the cube's key
        columns, and all of its measures. The page *Analytics* answers questions about long ranges from this view.
    version: raise it whenever the meaning of the stored rows changes.
    """

    reads: tuple[str, ...]
    transform: Callable[..., DataFrame]
    key: tuple[str, ...]
    measures: Mapping[str, Measure]
    present: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[str, ...] = ()
    keep: str | None = None
    allowed_lateness: str | None = None
    dedupe: str | None = None
    window: EventWindow | None = None
    about: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    meanings: Mapping[str, Meaning] = field(default_factory=dict)
    indexes: tuple[tuple[str, ...] | str, ...] = ()
    batch_only: bool = False
    owner: str = ""
    publish: bool = False
    all_if_null: tuple[str, ...] = ()
    hourly_of: str = ""
    version: int = 1

    def __post_init__(self) -> None:
        for duration in (self.keep, self.allowed_lateness, self.dedupe):
            if duration is not None:
                seconds(duration)
        if type(self.version) is not int or not 0 < self.version < 2**31:
            raise BadDeclaration(f"The version is {self.version!r}; use a whole number from 1.")
        if unknown := sorted(set(self.all_if_null) - set(self.key)):
            raise BadDeclaration(f"`all_if_null` names {', '.join(unknown)}; name key columns.")
        if outputs := [topic for topic in self.reads if topic.startswith(OUTPUT)]:
            raise BadDeclaration(
                f"A view reads event types, and {outputs[0]} is an output of a view. Read the event types that this "
                "view reads, or let an application read its output topic and send events "
                "(docs/decisions/104-views-over-views.md)."
            )
        if self.publish and self.batch_only:
            raise BadDeclaration("A batch-only view has no stream whose changes could be published. Remove `publish`.")

    @property
    def backfill_cost(self) -> str:
        """What a backfill of some days recomputes, and what the comparison that follows reads."""
        return (
            "A backfill recomputes the partials of its days. The comparison that follows adds up the partials of all "
            "days: its cost grows with the number of keys in each day."
        )

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics in the view's positions: its event types, and the ticks if the view depends on the log's clock."""
        return (*self.reads, TICKS) if self.reads_clock and TICKS not in self.reads else self.reads

    @property
    def reads_clock(self) -> bool:
        """Whether the view depends on the log's clock."""
        presents_clock = any("{clock}" in select for select in self.present.values())
        return self.keep is not None or self.window is not None or presents_clock

    @property
    def horizon(self) -> int | None:
        """The seconds of `dedupe`; None if each event counts."""
        return None if self.dedupe is None else seconds(self.dedupe)

    @property
    def is_stateful(self) -> bool:
        """Whether what an event adds depends on earlier events, which must then be in the same partition."""
        return self.dedupe is not None

    @property
    def partition_columns(self) -> tuple[str, ...] | None:
        """The columns that must contain the key of the topic; None if it need not be among the columns."""
        return None

    @property
    def question_columns(self) -> tuple[str, ...]:
        """The columns of the key that a question about rows must name."""
        return self.key

    @property
    def may_lose_rows(self) -> bool:
        """Whether a row may disappear again. A view from which no row disappears never shrinks."""
        return self.keep is not None

    def contributions(self, *events: DataFrame) -> DataFrame:
        """The transform's rows for one frame of events per event type, without the events that come too late."""
        if self.allowed_lateness is None:
            return self.transform(*events)
        late = is_late(self.allowed_lateness)
        return self.transform(*(each.where(~late) for each in events))
