"""`truelog notifications`: rules that send notifications of matches, hits and rows, and their deliveries."""

from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.box import SIMPLE

from truelog.cli.output import AsJson, Sheet, print_json, say
from truelog.cli.rules import rule_output
from truelog.cli.times import duration
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.rules.sending import Sent

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the notification rule.")]
MaybeName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Of this notification rule; all by default.")]
Rule = Annotated[str | None, typer.Option("--match", metavar="RULE", help="Notify of the matches of a pattern rule.")]
Search = Annotated[str | None, typer.Option("--hit", metavar="SEARCH", help="Notify of the hits of a stored search.")]
View = Annotated[str | None, typer.Option("--row", metavar="VIEW", help="Notify of rows of a view that publishes.")]
When = Annotated[str | None, typer.Option(metavar="CONDITION", help="With --row: which rows, such as 'errors > 9'.")]
Until = Annotated[
    str | None, typer.Option(metavar="CONDITION", help="With --row: when a row is over; by default, when --when ends.")
]
For = Annotated[str | None, typer.Option("--for", metavar="TIME", help="With --row: how long a row must fit, as 5m.")]
Channel = Annotated[str, typer.Option("--to", metavar="CHANNEL", help="The name of a channel in the settings.")]
GroupBy = Annotated[
    str | None, typer.Option(help="Columns, separated by commas: rows with equal values are one incident.")
]
Window = Annotated[
    str | None, typer.Option(help="How long an incident takes in further matches or hits, such as 30m; 1h by default.")
]
Template = Annotated[str | None, typer.Option(help="The text, with columns of the row such as $entity_id.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many to show.")]
Waiting = Annotated[bool, typer.Option("--waiting", help="Only notifications that are not delivered yet.")]
Lost = Annotated[bool, typer.Option("--lost", help="Only notifications that were refused or abandoned.")]

app = typer.Typer(help="Notifications of matches, hits and rows, and their deliveries.", no_args_is_help=True)


@app.command()
def add(  # noqa: PLR0913, PLR0917 — the options of the command
    name: Name,
    channel: Channel,
    match: Rule = None,
    hit: Search = None,
    row: View = None,
    when: When = None,
    until: Until = None,
    lasting: For = None,
    group_by: GroupBy = None,
    window: Window = None,
    template: Template = None,
    as_json: AsJson = False,
) -> None:
    """Add a notification rule, or change the rule of the same name. It notifies of the rows that come from now on.

    The exit code is 1 if the rule is in force already.
    """
    from truelog.rules import sending

    settings = Settings()
    subjects = {"match": match, "hit": hit, "row": row}
    given = [(kind, subject) for kind, subject in subjects.items() if subject is not None]
    if len(given) != 1:
        raise typer.BadParameter("say what to notify of: either --match RULE, --hit SEARCH or --row VIEW")
    if channel not in settings.notification_channels:
        known = ", ".join(sorted(settings.notification_channels)) or "none"
        raise typer.BadParameter(f"TRUELOG_NOTIFICATION_CHANNELS has no channel {channel!r}; it has {known}")
    [(kind, subject)] = given
    fields: dict[str, Any] = {
        "kind": kind,
        "subject": subject,
        "channel": channel,
        "group_by": group_by,
        "template": template,
    }
    fields |= {"condition": when, "until": until, "for_seconds": _seconds(lasting), "window_seconds": _seconds(window)}
    fields = _completed(settings, name, fields)
    _tell(sending.decide(settings, sending.SET_NOTIFICATION, notification=name, **fields), "added", as_json)


def _seconds(text: str | None) -> int | None:
    return None if text is None else int(duration(text).total_seconds())


def _completed(settings: Settings, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with what is left out. The conditions of a row rule are checked against the columns of its view."""
    from truelog.notifications import watched_view
    from truelog.notifications.rules import declaration
    from truelog.notifications.rules.found import KINDS, WINDOW_SECONDS
    from truelog.storage import db_snapshot
    from truelog.views import catalogue

    if fields["kind"] in KINDS:
        template = fields["template"] or KINDS[fields["kind"]].template
        fields = fields | {"window_seconds": fields["window_seconds"] or WINDOW_SECONDS, "template": template}
        declaration.check(fields, name)
        return fields
    shown = ", ".join(
        f"{column}=${column}" for column in catalogue.load_view(fields["subject"], settings.views_folder).key
    )
    with db_snapshot.read_snapshot(settings) as connection:
        columns = watched_view.columns(connection, fields["subject"])
    fields = fields | {"template": fields["template"] or f"{name}: {shown}"}
    declaration.check(fields, name, columns)
    return fields


@app.command()
def retire(name: Name, as_json: AsJson = False) -> None:
    """Retire a notification rule. What is waiting is still delivered. The exit code is 1 if it is not in force."""
    from truelog.rules import sending

    _tell(sending.decide(Settings(), sending.RETIRE_NOTIFICATION, notification=name), "retired", as_json)


@app.command("list")
def list_notifications(as_json: AsJson = False) -> None:
    """List the notification rules in force, with the number of their notifications."""
    from truelog.notifications import history
    from truelog.storage import db_snapshot

    with db_snapshot.read_snapshot(Settings()) as connection:
        known = history.known(connection)
    if as_json:
        print_json({"notifications": [each.as_dict() for each in known]})
        return
    table = Sheet("notification", "of", "to", "delivered", "waiting", "failed", box=SIMPLE, padding=(0, 1, 0, 0))
    for each in known:
        of = f"{each.rule.kind} {each.rule.subject}"
        counts = (f"{count:,}" for count in (each.delivered, each.waiting, each.failed))
        table.add_row(each.rule.name, of, each.rule.channel, *counts)
    table.show()


@app.command()
def show(name: Name, limit: Limit = 10, as_json: AsJson = False) -> None:
    """Show a notification rule, and its latest notifications."""
    from truelog.notifications import history
    from truelog.storage import db_snapshot

    with db_snapshot.read_snapshot(Settings()) as connection:
        found = history.named(connection, name)
        latest = history.deliveries(connection, name, limit)
    if as_json:
        print_json(found.as_dict() | {"deliveries": latest})
        return
    for what, value in found.as_dict().items():
        say(f"{what}: {', '.join(value) if isinstance(value, list) else value}")
    _show(latest)


@app.command()
def deliveries(
    name: MaybeName = None, limit: Limit = 20, waiting: Waiting = False, lost: Lost = False, as_json: AsJson = False
) -> None:
    """List the latest notifications with their tries, the newest first."""
    from truelog.notifications import history
    from truelog.storage import db_snapshot

    with db_snapshot.read_snapshot(Settings()) as connection:
        found = history.deliveries(connection, name, limit, waiting=waiting, lost=lost)
    if as_json:
        print_json({"deliveries": found})
    else:
        _show(found)


def _show(found: list[dict[str, Any]]) -> None:
    for each in found:
        failed = f" ({each['failed']})" if each["failed"] else ""
        say(
            f"{each['made_at']}  {each['notification']} to {each['channel']}  {each['says']}  {each['outcome']} "
            f"after {each['tries']} tries{failed}  {each['text']}"
        )


def _tell(sent: "Sent", done: str, as_json: bool) -> NoReturn:
    as_dict = {"notification" if name == "rule" else name: value for name, value in sent.as_dict().items()}
    rule_output.tell(sent, as_dict, done, as_json, "to the rows that come from now on")
