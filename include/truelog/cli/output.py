"""Command output and exit codes. Answers go to standard output, and everything else goes to standard error.

Texts come from producers, from authors of views and from errors. Each command prints them with `say` or in a `Sheet`.
There, brackets do not format anything, and a character that would control the terminal is written as an escape.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from truelog.storage import exact_json
from truelog.support.terminal import visible

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as one line of JSON.")]

MOST_ROWS = 2**63 - 1  # PostgreSQL's largest limit


class Exit(IntEnum):
    """Exit codes. Scripts rely on them."""

    FINE = 0
    DIFFERENT = 1  # the answer is known, but is not the desired answer
    BAD_USE = 2
    UNKNOWN = 3  # no answer: something necessary is missing or down


def say(text: str, *, title: str = "", err: bool = False) -> None:
    """Print a text, after its title if it has one."""
    typer.echo((typer.style(visible(title), bold=True) if title else "") + visible(text), err=err)


def print_json(answer: dict[str, Any]) -> None:
    say(exact_json.write(answer))


def print_document(document: dict[str, Any], as_json: bool) -> None:
    """Print a document for another tool, which is also YAML. It has one line with `--json`, and is indented without."""
    if as_json:
        print_json(document)
    else:
        say(json.dumps(document, indent=2, ensure_ascii=False))


class Sheet(Table):
    """A table of texts."""

    def add_column(self, header: RenderableType = "", *rest: Any, **options: Any) -> None:
        super().add_column(_plain(header), *rest, **options)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*map(_plain, cells), **options)

    def add_title(self, text: str) -> None:
        """A row that is the title of the rows below."""
        super().add_row(Text(visible(text), "bold"))

    def note(self, text: str) -> None:
        """Show a text below the table."""
        self.caption = Text(visible(text), "table.caption") if text else None

    def show(self) -> None:
        Console().print(self)


def _plain(cell: Any) -> Any:
    return Text(visible(cell)) if isinstance(cell, str) else cell


@contextmanager
def progress(title: str, total: float) -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error. Call the yielded function with the amount done so far."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(visible(title), total=total)
        yield lambda completed: bar.update(task, completed=completed)
