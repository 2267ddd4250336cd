"""`truelog registry keep`, `list` and `publish`: the schemas of framed records, and of the event types."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.box import SIMPLE

from truelog.cli.output import AsJson, Exit, Sheet, print_json, say
from truelog.support.settings import Settings

Name = Annotated[str, typer.Argument(metavar="EVENT", help="The event type.")]
Numbers = Annotated[
    list[int] | None,
    typer.Option("--id", min=0, help="The number of a schema; repeatable. By default, all of the topic's subject."),
]
Names = Annotated[list[str] | None, typer.Argument(metavar="[EVENT]...", help="The event types; all by default.")]

app = typer.Typer(help="The schemas of a schema registry.", no_args_is_help=True)


@app.command()
def keep(event: Name, numbers: Numbers = None, as_json: AsJson = False) -> None:
    """Keep schemas of the registry: from now on, records in their frames are events of this type."""
    from truelog.control.schema_registry import keeping

    kept = keeping.keep(Settings(), event, numbers or ())
    if as_json:
        schemas = [{"id": each.id, "kind": each.kind} for each in kept.schemas]
        print_json({"event": event, "version": kept.version, "new": kept.is_new, "schemas": schemas})
        return
    numbers_kept = ", ".join(f"{each.id} ({each.kind})" for each in kept.schemas)
    say(f"{event}: version {kept.version} {'now ' if kept.is_new else ''}keeps the schemas {numbers_kept}")


@app.command("list")
def list_kept(as_json: AsJson = False) -> None:
    """List the schemas that are kept. The registry is not asked."""
    from truelog.control import event_registry
    from truelog.storage.database import connect

    with connect(Settings()) as connection:
        kept = {name: each.kept() for name, each in sorted(event_registry.histories(connection).items())}
    rows = [(event, each) for event, schemas in kept.items() for each in schemas]
    if as_json:
        print_json({"schemas": [{"event": event} | asdict(each) for event, each in rows]})
        return
    table = Sheet("event type", "schema", "kind", box=SIMPLE, padding=(0, 1, 0, 0))
    for event, each in rows:
        table.add_row(event, str(each.id), each.kind)
    table.show()


@app.command()
def publish(events: Names = None, as_json: AsJson = False) -> None:
    """Register the JSON Schema of each event type at the registry, and keep it for records in its frame.

    The exit code is 1 if the registry refuses a schema.
    """
    from truelog.control import event_registry
    from truelog.control.schema_registry import keeping

    settings = Settings()
    types = event_registry.event_types(settings)
    if unknown := sorted({*(events or ())} - types.keys()):
        raise typer.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(types)}")
    found = keeping.publish(settings, [types[name] for name in events or types])
    if as_json:
        print_json({"schemas": [asdict(each) for each in found]})
    else:
        for each in found:
            say(f"{each.event}  {each.subject}  {each.refused or f'schema {each.id}'}")
    if any(each.refused for each in found):
        raise typer.Exit(Exit.DIFFERENT)
