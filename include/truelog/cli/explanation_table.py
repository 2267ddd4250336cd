"""The explanation of a row as a table for people."""

from typing import Any

from rich.console import Console
from rich.table import Table

from truelog.cli.output import Exit
from truelog.history.explanation import ExplainedEvent, Explanation, Verdict

EXIT_CODES = {Verdict.EQUAL: Exit.FINE, Verdict.DIFFERENT: Exit.DIFFERENT, Verdict.UNKNOWN: Exit.UNKNOWN}


def show(found: Explanation) -> None:
    """Print a page of events, each with the rows after it, and what the view has."""
    console = Console()
    columns = _columns(found)
    table = Table("", "event", "event time", "broker time", *columns)
    for event in found.events:
        _add(table, event, columns)
    if found.events:
        console.print(table)
    if found.earlier:
        console.print(f"earlier events: --before {found.earlier}", highlight=False)
    cost = found.cost
    size = f"{cost.records:,} records in {cost.files:,} files ({cost.bytes / 1e6:,.1f} MB)"
    console.print(f"{found.total:,} events of {size}, {found.seconds:.1f} s", highlight=False)
    for row in found.streamed if found.verdict is Verdict.DIFFERENT else ():
        console.print(f"in the view: {row}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{found.verdict}  {found.reason}".rstrip(), highlight=False, markup=False, soft_wrap=True)


def _columns(found: Explanation) -> list[str]:
    """The columns that may differ between rows, because the key does not name them."""
    rows = [*found.streamed, *found.rebuilt, *(row for event in found.events for row in event.rows)]
    return [name for name in (rows[0] if rows else ()) if name not in found.key]


def _add(table: Table, event: ExplainedEvent, columns: list[str]) -> None:
    times = (f"{time:%Y-%m-%d %H:%M:%S.%f}"[:-3] for time in (event.event_time, event.broker_time))
    first = [str(event.number), event.coordinates, *times]
    for row in event.rows or [dict[str, Any]()]:
        values = (_text(row[name]) if row else "no row" * (name == columns[0]) for name in columns)
        table.add_row(*first, *values)
        first = [""] * len(first)


def _text(value: Any) -> str:
    return "NULL" if value is None else str(value)
