"""The results: a file for scripts and a table for people."""

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from tests.bench.row import Row


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
    table = Table(title=f"make bench · {machine()}")
    for name in ("job", "engine", "ran"):
        table.add_column(name, no_wrap=True)
    for name in ("events/s", "ours ÷ theirs", "p50 s", "p99 s", "WAL bytes/event"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.job,
            row.engine,
            row.ran,
            f"{row.events_per_second:,.0f}",
            "" if row.ratio is None else f"{row.ratio:.1f}",
            *(_number(row.more.get(name)) for name in ("p50_seconds", "p99_seconds", "wal_bytes_per_event")),
        )
    console.print(table)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
