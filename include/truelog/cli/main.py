"""The `truelog` command line. To add a command, write its function in `commands/` and list the function below."""

from typing import Annotated

import typer

from truelog import __version__
from truelog.cli import commanding, examining, forgetting, replays, tailing, versioning
from truelog.cli.commands import (
    alerting,
    archiving,
    certifying,
    eventing,
    generating,
    importing,
    keys,
    lagging,
    limiting,
    querying,
    reconciling,
    replaying,
    services,
    streaming,
)
from truelog.cli.failure import explained
from truelog.cli.output import say
from truelog.cli.registry import schemas
from truelog.cli.rules import notifying, patterning, searching
from truelog.support.terminal import log_to_terminal

COMMANDS = (
    services.up,
    services.down,
    services.status,
    examining.doctor,
    examining.lineage,
    generating.generate,
    querying.query,
    querying.explain,
    querying.positions,
    lagging.lag,
    querying.views,
    querying.sql,
    tailing.tail,
    reconciling.reconcile,
    certifying.verify,
    certifying.certificates,
    reconciling.recompute,
    replays.replay,
    forgetting.forget,
)
GROUPS = {
    "application": streaming.app,
    "commands": commanding.app,
    "import": importing.app,
    "archive": archiving.app,
    "alerts": alerting.app,
    "capture": eventing.capture_app,
    "clock": streaming.clock_app,
    "key": keys.app,
    "dead-letters": replaying.app,
    "erasures": forgetting.app,
    "events": eventing.app,
    "limit": limiting.app,
    "namespace": services.namespace_app,
    "output": lagging.output_app,
    "notifications": notifying.app,
    "patterns": patterning.app,
    "registry": schemas.app,
    "replays": replays.app,
    "searches": searching.app,
    "versions": versioning.app,
}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        say(f"truelog {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The log is the truth; a view is a cache of it."""


for command in COMMANDS:
    app.command()(command)
for name, group in GROUPS.items():
    app.add_typer(group, name=name)


def main() -> None:
    log_to_terminal()
    with explained():
        app()
