"""Command output and exit codes. Answers go to standard output, and everything else goes to standard error."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as one line of JSON.")]

MOST_ROWS = 2**63 - 1  # PostgreSQL's largest limit


class Exit(IntEnum):
    """Exit codes. Scripts rely on them."""

    FINE = 0
    DIFFERENT = 1  # the answer is known, but is not the desired answer
    BAD_USE = 2
    UNKNOWN = 3  # no answer: something necessary is missing or down


def print_json(answer: dict[str, Any]) -> None:
    typer.echo(json.dumps(answer, separators=(",", ":"), default=str))


@contextmanager
def progress(title: str, total: float) -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error. Call the yielded function with the amount done so far."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda completed: bar.update(task, completed=completed)
