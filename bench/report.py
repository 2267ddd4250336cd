"""The results: a file for scripts and a table for people."""

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from bench.row import Row

_FIGURES = ("events", "seconds", "cores")
_SHARES = (50, 95, 99)  # percent of the marked events
BESIDE = "measured beside other load: only the CPU times are comparable"


def machine() -> str:
    return f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GB"


def write(path: Path, rows: Sequence[Row], events: int) -> None:
    """Write the rows, the time, the machine and the number of events as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "events": events,
        "rows": [row.as_dict() for row in rows],
    }
    path.write_text(json.dumps(whole, indent=1) + "\n")


def show(rows: Sequence[Row], console: Console) -> None:
    loud = [row for row in rows if not row.is_quiet]
    table = Table(title=f"make bench · {machine()}", caption=f"* {BESIDE}" if loud else None)
    table.add_column("job", ratio=1)
    for name in ("engine", "ran"):
        table.add_column(name, no_wrap=True)
    for name in (*_FIGURES, "events/s", "ours ÷ theirs"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("CPU µs/event", justify="right", ratio=1)
    for share in _SHARES:
        table.add_column(f"p{share} s", justify="right", no_wrap=True)
    table.add_column("reference ms", justify="right")
    for row in rows:
        table.add_row(
            row.job,
            row.engine,
            row.ran if row.is_quiet else f"{row.ran} *",
            *(_number(row.more.get(name)) for name in _FIGURES),
            f"{row.events_per_second:,.0f}",
            "" if row.ratio is None else f"{row.ratio:.1f}",
            cost(row),
            *(_number(row.more.get(f"p{share}_seconds")) for share in _SHARES),
            "" if row.reference_ms is None else f"{row.reference_ms:.1f}",
        )
    console.print(table)


def cost(row: Row) -> str:
    """The CPU time per event, with the largest parts first: `21.7: jvm 12.5, python workers 6.4`."""
    parts = {name: value for name, value in row.cpu_us_per_event.items() if name != "all" and value >= 0.05}
    if not parts:
        return ""
    listed = ", ".join(f"{name} {parts[name]:.1f}" for name in sorted(parts, key=lambda name: -parts[name]))
    return f"{row.cpu_us_per_event['all']:.1f}: {listed}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
