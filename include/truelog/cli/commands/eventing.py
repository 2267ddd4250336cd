"""`truelog events list`, `show` and `rejudge`: the versions of the event types. `truelog capture`: captured tables."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE

from truelog.cli.output import AsJson, Exit, Sheet, print_document, print_json, say
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.schema.event import EventType

Table = Annotated[str, typer.Argument(help="The event type of the table.")]
Name = Annotated[str, typer.Argument(metavar="EVENT", help="The event type.")]
AsyncApi = Annotated[
    bool, typer.Option("--asyncapi", help="Print an AsyncAPI document of all topics, also of the outputs of views.")
]
Odcs = Annotated[bool, typer.Option("--odcs", help="Print a data contract (Open Data Contract Standard).")]

_REMOVED = "removed: no file declares it, and its last version stays in force"

app = typer.Typer(help="The versions of the event types.", no_args_is_help=True)
capture_app = typer.Typer(help="Captured tables: their state, and new snapshots.", no_args_is_help=True)


@app.command("list")
def list_events(asyncapi: AsyncApi = False, as_json: AsJson = False) -> None:
    """List the event types with the version and the reading that are in force."""
    histories = _histories()
    if asyncapi:
        print_document(_asyncapi([each.event_type() for each in histories.values()]), as_json)
        return
    if as_json:
        print_json({"events": [_summary(each) for each in histories.values()]})
        return
    table = Sheet("event type", "version", "reading", "fields", "", box=SIMPLE, padding=(0, 1, 0, 0))
    for each in histories.values():
        state = _REMOVED if _is_removed(each.name) else ""
        table.add_row(each.name, str(each.version), str(each.reading), str(len(each.event_type().fields)), state)
    table.show()


@app.command()
def show(event: Name, odcs: Odcs = False, as_json: AsJson = False) -> None:
    """Show each version of an event type, and the first offsets that it judges."""
    from truelog.schema.event_version import offsets_as_data
    from truelog.schema.required import from_data

    history = _histories().get(event)
    if history is None:
        raise typer.BadParameter(f"{event}: choose from {', '.join(_histories())}")
    if odcs:
        print_document(_contract(history.event_type()), as_json)
        return
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
    if _is_removed(event):
        say(_REMOVED)
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


def _asyncapi(types: "list[EventType]") -> dict[str, Any]:
    from truelog.reports.contracts import asyncapi
    from truelog.storage import db_snapshot

    settings = Settings()
    with db_snapshot.read_snapshot(settings) as connection:
        return asyncapi.document(settings, connection, types)


def _contract(event_type: "EventType") -> dict[str, Any]:
    from truelog.reports.contracts.described import Description, descriptions
    from truelog.reports.contracts.odcs import event_contract

    settings = Settings()
    about = descriptions(settings).get(event_type.name, Description())
    return event_contract(settings, event_type, about)


def _is_removed(event: str) -> bool:
    from truelog.schema.loading.events import event_names

    return event not in event_names(Settings().events_folder)


def _summary(history: Any) -> dict[str, Any]:
    return {
        "event": history.name,
        "version": history.version,
        "reading": history.reading,
        "topic_id": history.topic_id,
        "removed": _is_removed(history.name),
    }


@capture_app.command()
def snapshot(table: Table, as_json: AsJson = False) -> None:
    """Read a whole table again. When that has ended, the view has no row that the table lacks."""
    from truelog.capture import snapshot

    settings = Settings()
    epoch = snapshot.take(settings, captured_type(settings, table))
    if as_json:
        print_json({"event_type": table, "epoch": epoch})
    else:
        say(f"{table}: snapshot {epoch} has begun. `truelog reconcile {table} --source` says when the view is equal.")


@capture_app.command()
def status(as_json: AsJson = False) -> None:
    """Show whether each table is captured, and how much of its database's log is not captured yet.

    The exit code is 1 if a table is not captured or has invalid rows, or if its view was not found equal lately.
    """
    from truelog.capture import invalid_changes, last_comparison, slot
    from truelog.capture.source_table import captured_types
    from truelog.storage.database import connect

    settings = Settings()
    require_on(settings)
    types = captured_types(settings)
    with connect(settings, autocommit=True) as connection:
        invalid, compared = invalid_changes.summaries(connection, types), last_comparison.load(connection, types)
        named = {name: invalid_changes.load(connection, name) for name in types} if as_json else {}
    found = [
        (each, *slot.verdict(each, settings.capture_retained_bytes)) for each in slot.captures(settings, types.values())
    ]
    if as_json:
        print_json({"tables": [_table(each, named, invalid, compared) for each in found]})
    else:
        for each, verdict, why in found:
            behind = "unknown" if each.slot is None or each.slot.behind is None else f"{each.slot.behind:,} bytes"
            name = each.event_type
            last = compared[name].verdict if name in compared else None
            seen = invalid.get(name, invalid_changes.Summary())
            rows = f"invalid rows: {seen.rows:,}  not judged yet: {seen.unjudged:,}"
            state = f"behind: {behind}  {rows}  compared: {last or 'never'}"
            say(f"{name}  {verdict}  {state}  {why}".rstrip())
    are_wrong = [verdict != slot.Verdict.OK for _, verdict, _ in found]
    are_wrong += [each.rows > 0 for each in invalid.values()]
    are_wrong += [last_comparison.problem(each, datetime.now(UTC)) is not None for each in compared.values()]
    if any(are_wrong):
        raise typer.Exit(Exit.DIFFERENT)


def _table(found: tuple[Any, str, str], named: Any, invalid: Any, compared: Any) -> dict[str, Any]:
    """What is known about a captured table. `named` has the invalid rows of each table, and `invalid` their summary."""
    capture, verdict, reason = found
    name = capture.event_type
    rows = [asdict(each) for each in named[name]]
    unjudged = invalid[name].unjudged if name in invalid else 0
    last = asdict(compared[name]) if name in compared else None
    described = {"verdict": verdict, "reason": reason, "invalid": rows, "unjudged": unjudged, "compared": last}
    return asdict(capture) | described


def captured_type(settings: Settings, name: str) -> "EventType":
    """The event type of a captured table.

    Raises:
        typer.BadParameter: there is no such table, or capture is off.
    """
    from truelog.capture.source_table import captured_types

    require_on(settings)
    captured = captured_types(settings)
    if name not in captured:
        raise typer.BadParameter(f"{name} is not a captured table: choose from {', '.join(sorted(captured)) or 'none'}")
    return captured[name]


def require_on(settings: Settings) -> None:
    if not settings.capture:
        raise typer.BadParameter("capture is off: set TRUELOG_CAPTURE=true and run `truelog up`")
