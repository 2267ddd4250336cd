"""`truelog events list`, `show` and `rejudge`: the versions of the event types."""

from typing import Annotated, Any

import typer
from rich.box import SIMPLE

from truelog.cli.output import AsJson, Exit, Sheet, print_json, say
from truelog.support.settings import Settings

Name = Annotated[str, typer.Argument(metavar="EVENT", help="The event type.")]

app = typer.Typer(help="The versions of the event types.", no_args_is_help=True)


@app.command("list")
def list_events(as_json: AsJson = False) -> None:
    """List the event types with the version and the reading that are in force."""
    histories = _histories()
    if as_json:
        print_json({"events": [_summary(each) for each in histories.values()]})
        return
    table = Sheet("event type", "version", "reading", "fields", box=SIMPLE, padding=(0, 1, 0, 0))
    for each in histories.values():
        table.add_row(each.name, str(each.version), str(each.reading), str(len(each.event_type().fields)))
    table.show()


@app.command()
def show(event: Name, as_json: AsJson = False) -> None:
    """Show each version of an event type, and the first offsets that it judges."""
    from truelog.schema.event_version import offsets_as_data
    from truelog.schema.required import from_data

    history = _histories().get(event)
    if history is None:
        raise typer.BadParameter(f"{event}: choose from {', '.join(_histories())}")
    versions = [
        {
            "version": cut.version,
            "first_offsets": offsets_as_data(cut.first_offsets),
            "declaration": history.declarations[cut.version],
        }
        for cut in history.in_force()
    ]
    if as_json:
        described = {"key": history.settings["topic"]["key"], "json_schema": history.event_type().json_schema}
        print_json(_summary(history) | described | {"versions": versions})
        return
    say(f"events with the same {history.settings['topic']['key'] or 'partition'} are in order")
    for each in versions:
        cut = ", ".join(f"{p}:{o}" for p, o in each["first_offsets"].items()) or "the first offset of each partition"
        say(f"version {each['version']} judges from {cut}")
        for field in each["declaration"]["fields"]:
            bounds = ", ".join(f"{n} {field[n]}" for n in ("least", "most", "shortest", "longest") if n in field)
            allowed = f"one of {', '.join(field['values'])}" if "values" in field else bounds
            required = "required" if field["required"] else "optional"
            say(f"  {field['name']}  {field['type']}  {required}  {allowed}".rstrip())
        for rule in from_data(each["declaration"].get("required", ())):
            say(f"  {rule.field} is required if {rule.condition}")


@app.command("rejudge")
def rejudge(event: Name, as_json: AsJson = False) -> None:
    """Judge all records of a topic by the newest version, and rebuild the topic's views. Run it again after a crash."""
    from truelog.batch import rejudge as command
    from truelog.storage.audit_trail import by_hand

    def report(line: str) -> None:
        say(line, err=True)

    result = command.rejudge(Settings(), event, report, by_hand())
    if as_json:
        print_json(result.as_dict())
    else:
        for view, reason in result.refused.items():
            say(f"{view}  {reason}")
    if result.refused:
        raise typer.Exit(Exit.UNKNOWN)


def _histories() -> dict[str, Any]:
    from truelog.control import event_registry
    from truelog.storage.database import connect

    with connect(Settings()) as connection:
        return event_registry.histories(connection)


def _summary(history: Any) -> dict[str, Any]:
    return {
        "event": history.name,
        "version": history.version,
        "reading": history.reading,
        "topic_id": history.topic_id,
    }
