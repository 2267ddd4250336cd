"""`truelog alerts`: what is wrong now; and what people do about it."""

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from truelog.cli.output import AsJson, Exit, print_json
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.alerts.alert import Alert, Silence

By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who says so.")]
Lasts = Annotated[str, typer.Option("--for", metavar="DURATION", help="As 30m, 2h or 1d.")]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="What is going on.")]
Key = Annotated[str, typer.Argument(help="As `truelog alerts` shows it.")]
Pattern = Annotated[
    str, typer.Argument(help="Of keys: application_down/stream, 'application_down/*', '*/page_views', '*'.")
]
Number = Annotated[int, typer.Argument(metavar="NUMBER", help="As `truelog alerts` shows it.")]

app = typer.Typer(help="What is wrong now, who works on it, and what is told to nobody.", invoke_without_command=True)


@app.callback()
def alerts(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the alerts that are open, and the silences that hold.

    Exit code 0 where no alert is open, 1 where one is, 3 where nobody looks whether anything is wrong.
    """
    if context.invoked_subcommand is not None:
        return
    from truelog.alerts import alert_store as kept
    from truelog.alerts import alert_watch
    from truelog.storage import db_snapshot

    with db_snapshot.read_snapshot(Settings()) as connection:
        found, quiet = kept.open_alerts(connection), kept.active_silences(connection)
        neglected = alert_watch.overdue_sources(connection)
    if as_json:
        answer = {"alerts": [_plain(each) for each in found], "silences": [asdict(each) for each in quiet]}
        print_json(answer | {"neglected": neglected})
    else:
        _show(found, quiet, neglected)
    if neglected:
        raise typer.Exit(Exit.UNKNOWN)
    if found:
        raise typer.Exit(Exit.DIFFERENT)


@app.command()
def ack(key: Key, by: By = "", as_json: AsJson = False) -> None:
    """Say that somebody works on an alert: it is told no more until it is resolved."""
    from truelog.alerts import alert_store as kept
    from truelog.storage.database import connect

    with connect(Settings()) as connection:
        alert = kept.acknowledge(connection, _with_current_kind(key), by or _me())
    _tell(_plain(alert), f"{alert.key} is acknowledged by {alert.acknowledged_by}", as_json)


@app.command()
def silence(pattern: Pattern, lasts: Lasts, why: Why, by: By = "", as_json: AsJson = False) -> None:
    """Have nothing new told of keys like this, for maintenance; what is resolved is told all the same."""
    from truelog.alerts import alert_store as kept
    from truelog.storage.database import connect

    duration = _duration(lasts)
    with connect(Settings()) as connection:
        made = kept.add_silence(connection, _with_current_kind(pattern), duration, by=by or _me(), why=why)
    _tell(asdict(made), f"silence {made.id} holds of {made.pattern} until {made.until:%Y-%m-%d %H:%M} UTC", as_json)


@app.command()
def unsilence(number: Number, by: By = "", as_json: AsJson = False) -> None:
    """End a silence before its time: what is open and was not told yet is told now."""
    from truelog.alerts import alert_store as kept
    from truelog.storage.database import connect

    with connect(Settings()) as connection:
        kept.end_silence(connection, number, by or _me())
    _tell({"id": number}, f"silence {number} has ended", as_json)


def _with_current_kind(key: str) -> str:
    """Accepts the former name of a kind, and says its present name."""
    from truelog.alerts import alert_kind

    current = alert_kind.with_current_kind(key)
    if current != key:
        typer.echo(f"{key} is now called {current}. The former name works until the next release.", err=True)
    return current


def _duration(written: str) -> Any:
    from truelog.support.durations import parse_brief
    from truelog.support.errors import BadDeclaration

    try:
        return parse_brief(written)
    except BadDeclaration as wrong:
        raise typer.BadParameter(str(wrong)) from wrong


def _me() -> str:
    return os.environ.get("USER") or "somebody"


def _plain(alert: "Alert") -> dict[str, Any]:
    from truelog.alerts.alert_kind import former_kind

    kind = alert.definition
    told = {"key": alert.key, "former_kind": former_kind(alert.kind)}
    told |= {"severity": str(kind.severity), "first_step": kind.first_step}
    return told | {"runbook": f"docs/runbooks/{alert.kind}.md"} | asdict(alert)


def _tell(answer: dict[str, Any], said: str, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        typer.echo(said)


def _show(found: "list[Alert]", quiet: "list[Silence]", neglected: list[str]) -> None:
    table, console = Table("alert", "severity", "since", "acknowledged", box=SIMPLE, padding=(0, 1, 0, 0)), Console()
    for alert in found:
        since = f"{alert.opened_at:%m-%d %H:%M:%S}"
        table.add_row(alert.key, str(alert.definition.severity), since, alert.acknowledged_by or "")
    if found:
        console.print(table)
    for alert in found:
        kind = alert.definition
        said = f"{kind.meaning.format(subject=alert.subject)}: {alert.cause}\n    {kind.first_step}"
        said += f" docs/runbooks/{alert.kind}.md"
        console.print(f"{alert.key}: {said}", highlight=False, markup=False, soft_wrap=True)
    for each in quiet:
        said = f"silence {each.id}: {each.pattern} until {each.until:%m-%d %H:%M} UTC by {each.by}: {each.why}"
        console.print(said, highlight=False, markup=False, soft_wrap=True)
    if neglected:
        said = f"nobody looks at: {', '.join(neglected)}. `truelog status`: is `lag` READY?"
        console.print(said, highlight=False, markup=False, soft_wrap=True)
    elif not found:
        console.print("no alert is open")
