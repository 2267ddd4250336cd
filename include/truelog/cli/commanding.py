"""`truelog commands list`, `show` and `log`: the commands, and what was decided."""

from typing import Annotated, Any

import typer
from rich.box import SIMPLE

from truelog.cli.output import AsJson, Exit, Sheet, print_json, say
from truelog.support.settings import Settings

app = typer.Typer(help="The commands, and what was decided.", no_args_is_help=True)


@app.command("list")
def list_commands(as_json: AsJson = False) -> None:
    """List the commands with the event type on whose state each decides."""
    from truelog.commands import catalogue

    known = catalogue.load()
    listed = [catalogue.document(name, command) for name, command in known.commands.items()]
    if as_json:
        commands = [{name: each[name] for name in ("command", "event", "about")} for each in listed]
        print_json({"commands": commands, "refused": dict(known.refused)})
        raise typer.Exit(Exit.UNKNOWN if known.refused else Exit.FINE)
    table = Sheet("command", "event type", "what it does", box=SIMPLE, padding=(0, 1, 0, 0))
    for each in listed:
        table.add_row(str(each["command"]), str(each["event"]), str(each["about"]).partition("\n")[0])
    table.show()
    for name, reason in known.refused.items():
        say(f"{name}  {reason}")
    raise typer.Exit(Exit.UNKNOWN if known.refused else Exit.FINE)


@app.command()
def show(command: Annotated[str, typer.Argument(help="The command.")], as_json: AsJson = False) -> None:
    """Show the fields of a command."""
    from truelog.commands import catalogue

    commands = catalogue.load().commands
    if command not in commands:
        raise typer.BadParameter(f"{command}: choose from {', '.join(commands)}")
    found = catalogue.document(command, commands[command])
    if as_json:
        print_json(found)
        return
    say(str(found["about"]))
    schema: Any = found["fields"]
    for name, field in schema["properties"].items():
        required = "required" if name in schema.get("required", ()) else "optional"
        say(f"  {name}  {field.get('type', '')}  {required}  {field.get('description', '')}".rstrip())


@app.command("log")
def show_log(
    command: Annotated[str | None, typer.Option(help="Only decisions of this command.")] = None,
    key: Annotated[str | None, typer.Option(help="Only decisions on this key.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The number of decisions.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the latest decisions, also refusals, the newest first."""
    from truelog.commands import history
    from truelog.storage.database import connect

    with connect(Settings()) as connection:
        found = history.latest(connection, limit, command=command, key=key)
    if as_json:
        print_json({"decisions": [each.as_dict() for each in found]})
        return
    for each in found:
        version = each.answer["version"]
        say(f"{each.at:%Y-%m-%d %H:%M:%S}  {each.command}  {each.key}  version {version}  {each.sender}  {each.result}")
