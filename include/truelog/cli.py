"""The command line: `truelog WORD …`. To add a word, write its function in `commands/` and name it below."""

import logging
import sys

import typer

from truelog.commands import reconciling, services
from truelog.commands.output import Exit
from truelog.errors import TruelogError

COMMANDS = (
    services.up,
    services.down,
    services.status,
    reconciling.reconcile,
)

app = typer.Typer(
    help="The log is the truth; a view is a cache of it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in COMMANDS:
    app.command()(command)


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("truelog").setLevel(logging.INFO)
    try:
        app()
    except TruelogError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(Exit.UNKNOWN)
