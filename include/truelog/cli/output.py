"""What every command prints, and how it ends: answers on standard output, everything else on standard error."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

AsJson = Annotated[bool, typer.Option("--json", help="Answer with one line of JSON.")]


class Exit(IntEnum):
    """Exit codes; scripts rely on them."""

    FINE = 0
    DIFFERENT = 1  # the answer is known, and it is not the wanted one
    BAD_USE = 2
    UNKNOWN = 3  # no answer: something that is needed is missing or down


def print_json(answer: dict[str, Any]) -> None:
    typer.echo(json.dumps(answer, separators=(",", ":"), default=str))


@contextmanager
def progress(what: str, total: float) -> Iterator[Callable[[float], None]]:
    """A bar on standard error; what it yields is told how much of the total is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda completed: bar.update(task, completed=completed)
