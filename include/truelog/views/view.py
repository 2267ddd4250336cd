"""View: a pure function of the events up to some positions, kept as a table to read from.

A view is one file in `spark_apps/views/`; the file's name is the view's name. It holds values and a plain function:

    VIEW = View(reads=("page_view",), transform=transform, key=("minute", "host"), measures={"views": Sum()})

`transform` takes one DataFrame for each topic read, in the order of `reads`, and ends in a select of exactly key and
measures. It may select, filter, explode and union: what one record adds must not depend on any other record.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from truelog.support.durations import seconds
from truelog.views.measures import Measure


@dataclass(frozen=True, kw_only=True)
class View:
    """The declaration of a view.

    reads: event types, each a topic of that name.
    key, measures: the columns of a row; key columns may be NULL.
    present: further readable relations, name → SELECT over `{view}`, asked when reading.
    checks: SQL predicates that hold for every row.
    keep: how long rows stay by the log's clock after their first timestamp key column ("7 days"); None for ever.
    columns: what each column means, shown to readers.
    version: to be raised whenever the meaning of the stored rows changes.
    """

    reads: tuple[str, ...]
    transform: Callable[..., DataFrame]
    key: tuple[str, ...]
    measures: Mapping[str, Measure]
    present: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[str, ...] = ()
    keep: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    version: int = 1

    def __post_init__(self) -> None:
        if self.keep is not None:
            seconds(self.keep)

    @property
    def topics(self) -> tuple[str, ...]:
        """What the view's positions name: its events, and the ticks where the clock of the log moves it."""
        return (*self.reads, "ticks") if self.keep and "ticks" not in self.reads else self.reads
