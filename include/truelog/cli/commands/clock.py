"""`truelog clock`: the clock of the log, which waits after a jump until the jump is confirmed."""

import typer

from truelog.support.settings import Settings

app = typer.Typer(help="The clock of the log, which decides when rows expire.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Keep `confirm` a subcommand, although there is only one."""


@app.command()
def confirm() -> None:
    """Confirm that the machine's clock is right after a jump of more than a day, so that rows expire again."""
    from truelog.log import clock_guard
    from truelog.storage.audit_trail import by_hand
    from truelog.storage.database import connect

    with connect(Settings()) as connection:
        hold = clock_guard.confirm_jump(connection, by_hand())
    if hold is None:
        typer.echo("the clock of the log has not jumped")
    else:
        typer.echo(f"confirmed: the clock of the log goes from {hold.newest} to {hold.machine}")
