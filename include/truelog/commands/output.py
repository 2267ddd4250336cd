"""What every command prints, and how it ends: answers on standard output, everything else on standard error."""

import json
from enum import IntEnum
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Answer with one line of JSON.")]


class Exit(IntEnum):
    """Exit codes; scripts rely on them."""

    FINE = 0
    DIFFERENT = 1  # the answer is known, and it is not the wanted one
    BAD_USE = 2
    UNKNOWN = 3  # no answer: something that is needed is missing or down


def print_json(answer: dict[str, Any]) -> None:
    typer.echo(json.dumps(answer, separators=(",", ":"), default=str))
