"""The explanation of a row as a table for people."""

from typing import Any

from truelog.cli.output import Exit, Sheet, say
from truelog.history.explanation import ExplainedEvent, Explanation, Verdict

EXIT_CODES = {Verdict.EQUAL: Exit.FINE, Verdict.DIFFERENT: Exit.DIFFERENT, Verdict.UNKNOWN: Exit.UNKNOWN}


def show(found: Explanation) -> None:
    """Print a page of events, each with the rows after it, and what the view has."""
    columns = _columns(found)
    table = Sheet("", "event", "event time", "broker time", *columns)
    for event in found.events:
        _add(table, event, columns)
    if found.events:
        table.show()
    for event in found.events:
        if event.refused:
            say(f"event {event.number} changes nothing: {event.refused}")
    if found.earlier:
        say(f"earlier events: --before {found.earlier}")
    cost = found.cost
    size = f"{cost.records:,} records in {cost.files:,} files ({cost.bytes / 1e6:,.1f} MB)"
    say(f"{found.total:,} events of {size}, {found.seconds:.1f} s")
    if found.refused:
        say(f"{found.refused:,} of the events were refused")
    for row in found.streamed if found.verdict is Verdict.DIFFERENT else ():
        say(f"in the view: {row}")
    say(f"{found.verdict}  {found.reason}".rstrip())


def _columns(found: Explanation) -> list[str]:
    """The columns that may differ between rows, because the key does not name them."""
    rows = [*found.streamed, *found.rebuilt, *(row for event in found.events for row in event.rows)]
    return [name for name in (rows[0] if rows else ()) if name not in found.key]


def _add(table: Sheet, event: ExplainedEvent, columns: list[str]) -> None:
    times = (f"{time:%Y-%m-%d %H:%M:%S.%f}"[:-3] for time in (event.event_time, event.broker_time))
    first = [str(event.number), event.coordinates, *times]
    for row in event.rows or [dict[str, Any]()]:
        values = (_text(row[name]) if row else "no row" * (name == columns[0]) for name in columns)
        table.add_row(*first, *values)
        first = [""] * len(first)


def _text(value: Any) -> str:
    return "NULL" if value is None else str(value)
