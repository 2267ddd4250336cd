"""`truelog query`, `positions`, `views`, `sql`: what the platform knows, read and never changed."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from truelog.cli.naming import named
from truelog.cli.output import AsJson, Exit, print_json
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.views.view import View

Name = Annotated[str, typer.Argument(metavar="VIEW", help="Its file's name; `truelog views` shows them all.")]
Limit = Annotated[int | None, typer.Option(min=0, help="At most so many rows; all of them by default.")]
Relation = Annotated[str | None, typer.Option(help="A further relation that the view presents, by its name there.")]
Query = Annotated[str, typer.Argument(metavar="QUERY", help="As: SELECT url, count(*) FROM page_view GROUP BY url")]


def query(view: Name, limit: Limit = None, relation: Relation = None, as_json: AsJson = False) -> None:
    """Print a view's rows, each as one line of JSON, as of one moment.

    Where the batch layer answers, or rows are doubted, a line on standard error says so.
    """
    from truelog.serving import serving_status
    from truelog.storage import db_snapshot
    from truelog.views import catalogue

    settings, name = Settings(), view
    named(settings, [view])
    if relation is not None:
        presented = catalogue.load_view(view, settings.views_folder).present
        if relation not in presented:
            raise typer.BadParameter(f"{relation}: {view} presents {', '.join(presented) or 'no further relations'}")
        view = f"{view}_{relation}"
    with db_snapshot.read_snapshot(settings) as connection:
        answer = serving_status.serving_statuses(connection).get(name)
        if answer and answer.reason:
            typer.echo(answer.line, err=True)
        for row in db_snapshot.view_rows(connection, view, limit):
            typer.echo(row)


def positions(as_json: AsJson = False) -> None:
    """Show up to where each view has counted the log: its next offset in each partition; and what is the matter."""
    from truelog.apps import reader_positions
    from truelog.control import view_status
    from truelog.serving import serving_status
    from truelog.storage import db_snapshot
    from truelog.views import catalogue

    settings = Settings()
    with db_snapshot.read_snapshot(settings) as connection:
        stood = reader_positions.view_positions(connection, catalogue.view_names(settings.views_folder))
        still = [each for each in view_status.view_statuses(connection) if each.state == view_status.STALLED]
        answers = serving_status.serving_statuses(connection)
    shown = {view: stand.positions.plain() for view, stand in stood.items()}
    if as_json:
        print_json(shown)
        return
    table = Table("view", "topic", "next offsets by partition")
    for view, topics in shown.items():
        for topic, offsets in topics.items() or {"": dict[int, int]()}.items():
            places = "  ".join(f"{p}:{offset:,}" for p, offset in offsets.items())
            table.add_row(view, topic, places or ("nothing merged yet" if topic else "not made yet"))
    Console().print(table)
    for each in still:
        why = f"{each.view} stands still since {each.since:%Y-%m-%d %H:%M:%S}: {each.reason}"
        Console().print(why, highlight=False, markup=False)
    for answer in (answers[view] for view in shown if view in answers and answers[view].reason):
        Console().print(answer.line, highlight=False, markup=False, soft_wrap=True)


def views(as_json: AsJson = False) -> None:
    """Show the catalogue: each view, what it reads, its columns and what they mean.

    Exit code 3 where a view's file is broken; its reason is told, and the others are shown.
    """
    from truelog.apps import reader_positions
    from truelog.serving import serving_status
    from truelog.storage import db_snapshot

    settings = Settings()
    declared, refused = _declared(settings)
    with db_snapshot.read_snapshot(settings) as connection:
        stood = reader_positions.view_positions(connection, declared)
        columns = {name: db_snapshot.view_columns(connection, name) for name in declared}
        answers = serving_status.serving_statuses(connection)
    entries = [
        {
            "view": name,
            "version": view.version,
            "reads": list(view.reads),
            "key": list(view.key),
            "measures": {column: repr(measure) for column, measure in view.measures.items()},
            "presents": list(view.present),
            "keep": view.keep,
            "application": settings.applications.get(name, "stream"),
            "columns": columns[name],
            "positions": stood[name].positions.plain(),
            **serving_status.serving_fields(answers.get(name)),
        }
        for name, view in declared.items()
    ]
    if as_json:
        print_json({"views": entries, "refused": refused})
    else:
        for entry in entries:
            _show(entry)
        for name, reason in refused.items():
            Console().print(f"{name}  {reason}", highlight=False, markup=False)
    if refused:
        raise typer.Exit(Exit.UNKNOWN)


def _declared(settings: Settings) -> "tuple[dict[str, View], dict[str, str]]":
    """Each view by its name; and of those whose files are broken, why."""
    from truelog.support.errors import BadDeclaration
    from truelog.views import catalogue

    declared, refused = {}, {}
    for name in catalogue.view_names(settings.views_folder):
        try:
            declared[name] = catalogue.load_view(name, settings.views_folder)
        except BadDeclaration as bad:
            refused[name] = str(bad)
    return declared, refused


def sql(query: Query, as_json: AsJson = False) -> None:
    """Ask the archive: a SELECT over tables named like event types, each holding every record for ever.

    Records that are no such event have `invalid` set and no typed columns. Nothing but these tables can be reached.
    """
    from truelog.archive import analyst
    from truelog.support.errors import BadInput

    try:
        with analyst.run_query(Settings(), query) as rows:
            if as_json:
                print_json({"columns": rows.columns, "rows": analyst.as_dicts(rows)})
            else:
                rows.show(max_rows=1_000)
    except BadInput as wrong:
        typer.echo(wrong, err=True)
        raise typer.Exit(Exit.BAD_USE) from wrong


def _show(entry: dict[str, Any]) -> None:
    console = Console()
    facts = f"version {entry['version']}, reads {', '.join(entry['reads'])}, run by {entry['application']}"
    facts += f", answered by its {entry['layer']} layer" if entry["layer"] else ""
    console.print(f"[bold]{entry['view']}[/bold]  {facts}", highlight=False)
    table = Table("column", "type", "adds up as", "meaning")
    for column in entry["columns"]:
        adds_up = "key" if column["name"] in entry["key"] else entry["measures"].get(column["name"], "")
        table.add_row(column["name"], column["type"], adds_up, column["comment"] or "")
    console.print(table if entry["columns"] else "  not made yet: its stream makes it when it first runs")
