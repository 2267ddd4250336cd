"""`truelog alerts`: lists, acknowledges and silences alerts."""

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE

from truelog.cli.output import AsJson, Exit, Sheet, print_json, say
from truelog.cli.times import duration
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.alerts.rules import Alert, Silence

By = Annotated[str, typer.Option("--by", metavar="NAME", help="Your name. By default, your user name.")]
Lasts = Annotated[str, typer.Option("--for", metavar="DURATION", help="For example 30m, 2h or 1d.")]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason for the silence.")]
Key = Annotated[str, typer.Argument(help="The key, as shown by `truelog alerts`.")]
Pattern = Annotated[
    str, typer.Argument(help="A key pattern, such as application_down/stream, 'application_down/*', '*/page_views'.")
]
Number = Annotated[
    int, typer.Argument(metavar="NUMBER", max=2**63 - 1, help="The silence number, as shown by `truelog alerts`.")
]

app = typer.Typer(help="Open alerts, acknowledgements and silences.", invoke_without_command=True)


@app.callback()
def alerts(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the open alerts and the active silences.

    The exit code is 0 if no alert is open, 1 if an alert is open, and 3 if an alert source is making no checks.
    """
    if context.invoked_subcommand is not None:
        return
    from functools import partial

    from truelog.alerts import scheduler as alert_scheduler
    from truelog.alerts import store as alert_store
    from truelog.lag.limits import application_of_reader
    from truelog.storage import db_snapshot

    with db_snapshot.read_snapshot(Settings()) as connection:
        causes = alert_store.causes(connection, partial(application_of_reader, Settings()))
        alerts, silences = alert_store.open_alerts(connection), alert_store.active_silences(connection)
        overdue = alert_scheduler.overdue_sources(connection)
    if as_json:
        found = [_as_json(each) | {"follows_from": causes.get(each.key)} for each in alerts]
        answer = {"alerts": found, "silences": [asdict(each) for each in silences]}
        print_json(answer | {"neglected": overdue})
    else:
        _show(alerts, causes, silences, overdue)
    if overdue:
        raise typer.Exit(Exit.UNKNOWN)
    if alerts:
        raise typer.Exit(Exit.DIFFERENT)


@app.command()
def ack(key: Key, by: By = "", as_json: AsJson = False) -> None:
    """Acknowledge an alert. No more reminders are sent for the alert."""
    from truelog.alerts import store as alert_store
    from truelog.storage.database import connect

    with connect(Settings()) as connection:
        alert = alert_store.acknowledge(connection, key, by or _user())
    _answer(_as_json(alert), f"{alert.key} is acknowledged by {alert.acknowledged_by}", as_json)


@app.command()
def silence(pattern: Pattern, lasts: Lasts, why: Why, by: By = "", as_json: AsJson = False) -> None:
    """Silence new alerts that match a pattern, for example during maintenance. Resolutions are still sent."""
    from truelog.alerts import store as alert_store
    from truelog.storage.database import connect

    end_after = duration(lasts)
    with connect(Settings()) as connection:
        made = alert_store.add_silence(connection, pattern, end_after, by=by or _user(), why=why)
    _answer(asdict(made), f"silence {made.id} covers {made.pattern} until {made.until:%Y-%m-%d %H:%M} UTC", as_json)


@app.command()
def unsilence(number: Number, by: By = "", as_json: AsJson = False) -> None:
    """End a silence early. Notifications of open alerts that the silence held back are sent now."""
    from truelog.alerts import store as alert_store
    from truelog.storage.database import connect

    with connect(Settings()) as connection:
        alert_store.end_silence(connection, number, by or _user())
    _answer({"id": number}, f"silence {number} has ended", as_json)


def _user() -> str:
    return os.environ.get("USER") or "somebody"


def _as_json(alert: "Alert") -> dict[str, Any]:
    kind = alert.definition
    described = {"key": alert.key, "severity": str(kind.severity), "first_step": kind.first_step}
    return described | {"runbook": f"docs/runbooks/{alert.kind}.md"} | asdict(alert)


def _answer(answer: dict[str, Any], line: str, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        say(line)


def _show(alerts: "list[Alert]", causes: dict[str, str], silences: "list[Silence]", overdue: list[str]) -> None:
    heads = ("alert", "severity", "since", "acknowledged", "follows from")
    table = Sheet(*heads, box=SIMPLE, padding=(0, 1, 0, 0))
    for alert in alerts:
        since, cause = f"{alert.opened_at:%m-%d %H:%M:%S}", causes.get(alert.key, "")
        table.add_row(alert.key, str(alert.definition.severity), since, alert.acknowledged_by or "", cause)
    if alerts:
        table.show()
    for alert in alerts:
        kind = alert.definition
        line = f"{kind.meaning.format(subject=alert.subject)}: {alert.cause}\n    {kind.first_step}"
        line += f" docs/runbooks/{alert.kind}.md"
        say(f"{alert.key}: {line}")
    for each in silences:
        line = f"silence {each.id}: {each.pattern} until {each.until:%m-%d %H:%M} UTC by {each.by}: {each.why}"
        say(line)
    if overdue:
        line = f"These sources are making no checks: {', '.join(overdue)}. Is `lag` READY in `truelog status`?"
        say(line)
    elif not alerts:
        say("no alert is open")
