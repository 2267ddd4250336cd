"""`truelog query`, `explain`, `positions`, `views` and `sql`: read-only queries."""

import json
from contextlib import redirect_stdout
from datetime import datetime
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truelog.cli.naming import named
from truelog.cli.output import MOST_ROWS, AsJson, Exit, Sheet, print_document, print_json, say
from truelog.cli.times import past_time
from truelog.storage import exact_json
from truelog.support.settings import Settings
from truelog.views.catalogue import table_name

if TYPE_CHECKING:
    from truelog.exports.query import RowQuery
    from truelog.views.view import View

Name = Annotated[str, typer.Argument(metavar="VIEW", help="The name of the view. `truelog views` lists all views.")]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[VIEW...]", help="Only these views. By default, all views.")
]
Limit = Annotated[int | None, typer.Option(min=0, max=MOST_ROWS, help="Maximum number of rows. By default, all rows.")]
Seconds = Annotated[float, typer.Option(min=0.1, help="Time limit in seconds.")]
Relation = Annotated[str | None, typer.Option(help="The name of an additional relation that the view presents.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Only rows that meet the condition, such as 'host=shop.example', 'minute>=2026-01-01T00:00', "
        "'page contains item' or 'host is NULL'. If repeated, rows that meet all conditions.",
    ),
]
Order = Annotated[str | None, typer.Option(metavar="COLUMN", help="Sort by this column. By default, unsorted.")]
Descending = Annotated[bool, typer.Option("--descending", help="Sort from the largest value to the smallest.")]
Columns = Annotated[str | None, typer.Option(metavar="A,B", help="Only these columns, in this order.")]
Query = Annotated[
    str, typer.Argument(metavar="QUERY", help="For example: SELECT url, count(*) FROM page_view GROUP BY url")
]


_MOST_EVENTS = 200  # each of them needs the row after it
AsOf = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="The rows as they were at this time of the log, such as 2026-03-01T12:00:00Z."),
]
Version = Annotated[int | None, typer.Option(min=1, help="This version, whatever version readers see.")]
Dbt = Annotated[bool, typer.Option("--dbt", help="Print a source file for dbt, with the views that have a table.")]
Odcs = Annotated[
    bool,
    typer.Option("--odcs", help="Print a data contract (Open Data Contract Standard) of each view that has a table."),
]
Key = Annotated[
    list[str] | None, typer.Argument(metavar="COLUMN=VALUE...", help="Each key column of the row, and its value.")
]
Null = Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="A key column that is NULL. May be repeated.")]
Events = Annotated[int, typer.Option(min=1, max=_MOST_EVENTS, help="Maximum number of events.")]
Before = Annotated[
    str | None,
    typer.Option(metavar="EVENT", help="Only events before this one, which is named by topic:partition:offset."),
]


def query(  # noqa: PLR0913, PLR0917 — the options of the command
    view: Name,
    where: Where = None,
    order: Order = None,
    descending: Descending = False,
    columns: Columns = None,
    limit: Limit = None,
    relation: Relation = None,
    version: Version = None,
    as_of: AsOf = None,
    as_json: AsJson = False,
) -> None:
    """Print the rows of a view at one moment, one JSON object per line.

    If the batch layer serves the view or its rows are known to be wrong, a line on standard error says so.

    With --as-of, the rows are rebuilt from the archive as of an earlier time of the log, at its last tick up to this
    time. The time is in UTC. It is the time at which events reached the log, and not the time of the events. A line on
    standard error shows the tick, the positions and the cost. With --json, the answer is one line with all of these.
    Without --version, the code is that of the view's file.
    """
    from truelog.exports.query import Condition, RowQuery

    settings = Settings()
    named(settings, [view])
    shown = view if version is None or as_of is not None else table_name(view, version)
    if relation is not None and (as_of is None or version is None):  # another version may present other relations
        _require_presented(settings, view, relation)
    wanted = RowQuery(
        relation=shown if relation is None else f"{shown}_{relation}",
        conditions=[Condition.parse(each) for each in where or ()],
        order=order,
        descending=descending,
        columns=columns.split(",") if columns else (),
        limit=limit,
    )
    if as_of is not None:
        _query_past(settings, (view, version), past_time(as_of), wanted, as_json)
    else:
        _query_present(settings, view, wanted, is_pinned=version is not None)


def _query_present(settings: Settings, view: str, wanted: "RowQuery", *, is_pinned: bool) -> None:
    from truelog.exports import rows as row_export
    from truelog.serving import status as serving_status
    from truelog.storage import db_snapshot

    with db_snapshot.read_snapshot(settings) as connection:
        answer = serving_status.serving_statuses(connection).get(view)
        if answer and answer.reason and not is_pinned:
            say(answer.line, err=True)
        for row in row_export.json_lines(row_export.stream_rows(connection, wanted)):
            say(row)


def _require_presented(settings: Settings, view: str, relation: str) -> None:
    from truelog.tables.side_tables import relation_names
    from truelog.views import catalogue

    presented = relation_names(catalogue.load_view(view, settings.views_folder))
    if relation not in presented:
        raise typer.BadParameter(f"{relation}: {view} presents {', '.join(presented) or 'no further relations'}")


def _query_past(
    settings: Settings, asked: tuple[str, int | None], at: datetime, wanted: "RowQuery", as_json: bool
) -> None:
    from truelog.batch.batch_context import open_view
    from truelog.history.as_of import open_past
    from truelog.history.past_versions import open_version

    (view, version), name = asked, "truelog query"
    opened = open_view(settings, name, view) if version is None else open_version(settings, name, view, version)
    with opened as (context, compiled), open_past(context, compiled, at) as past:
        if as_json:
            print_json(past.as_dict() | {"rows": [exact_json.read(row) for row in past.rows(wanted)]})
            return
        for row in past.rows(wanted):
            say(row)
        say(json.dumps(past.as_dict(), default=str), err=True)


def explain(  # noqa: PLR0913, PLR0917 — the options of the command
    view: Name,
    key: Key = None,
    null: Null = None,
    limit: Events = 50,
    before: Before = None,
    as_json: AsJson = False,
) -> None:
    """Show the archived events behind a row, in their order in the log, and the row after each of them.

    The last events are shown first; `--before` continues with earlier ones. The exit code is 0 if the events add up to
    the row, 1 if they do not, and 3 if the archive lacks some of them. See `docs/explain.md`.
    """
    from truelog.spark.early import begin_session

    settings, given = Settings(), _key(key or [], null or [])
    named(settings, [view])
    started = begin_session(settings, "truelog explain")  # before the imports, because Java starts meanwhile
    from truelog.batch.batch_context import open_view
    from truelog.cli import explanation_table
    from truelog.history import explain as explaining

    with open_view(settings, "truelog explain", view, started) as (context, compiled):
        found = explaining.explain(context, compiled, given, explaining.Page(limit, before))
    if as_json:
        print_json(found.as_dict())
    else:
        explanation_table.show(found)
    raise typer.Exit(explanation_table.EXIT_CODES[found.verdict])


def _key(given: list[str], null: list[str]) -> dict[str, str | None]:
    if wrong := [each for each in given if "=" not in each]:
        raise typer.BadParameter(f"{', '.join(wrong)}: write COLUMN=VALUE, or --null COLUMN")
    pairs = [(name, value) for name, _, value in (each.partition("=") for each in given)]
    key = dict(pairs) | dict.fromkeys(null)
    if len(key) < len(pairs) + len(null):
        raise typer.BadParameter("a key column has two values")
    return key


def positions(as_json: AsJson = False) -> None:
    """Show the position of each view, which is its next offset in each partition, and list any view problems."""
    from truelog.apps import reader_positions
    from truelog.control import view_status
    from truelog.serving import status as serving_status
    from truelog.storage import db_snapshot
    from truelog.views import catalogue

    settings = Settings()
    with db_snapshot.read_snapshot(settings) as connection:
        known = reader_positions.view_positions(connection, catalogue.view_names(settings.views_folder))
        stalled = [each for each in view_status.view_statuses(connection) if each.state == view_status.STALLED]
        answers = serving_status.serving_statuses(connection)
    shown = {view: each.positions.plain() for view, each in known.items()}
    if as_json:
        print_json(shown)
        return
    table = Sheet("view", "topic", "next offsets by partition")
    for view, topics in shown.items():
        for topic, offsets in topics.items() or {"": dict[int, int]()}.items():
            by_partition = "  ".join(f"{p}:{offset:,}" for p, offset in offsets.items())
            table.add_row(view, topic, by_partition or ("nothing merged yet" if topic else "no table yet"))
    table.show()
    for each in stalled:
        line = f"{each.view} has been stalled since {each.since:%Y-%m-%d %H:%M:%S}: {each.reason}"
        say(line)
    for answer in (answers[view] for view in shown if view in answers and answers[view].reason):
        say(answer.line)


def views(only: Names = None, dbt: Dbt = False, odcs: Odcs = False, as_json: AsJson = False) -> None:
    """Show the catalogue: each view with its topics and columns, and the meaning of each column.

    The exit code is 3 if a view's file is broken. The reason is printed, and the other views are still shown.
    """
    from truelog.apps import reader_positions
    from truelog.control import application
    from truelog.serving import status as serving_status
    from truelog.storage import db_snapshot

    settings = Settings()
    declared, broken = _declared(settings, named(settings, only))
    if dbt or odcs:
        (_print_dbt_source if dbt else _print_contracts)(settings, declared, broken, as_json)
        return
    with db_snapshot.read_snapshot(settings) as connection:
        known = reader_positions.view_positions(connection, declared)
        columns = {name: db_snapshot.view_columns(connection, name) for name in declared}
        answers = serving_status.serving_statuses(connection)
    entries = [
        {
            "view": name,
            **_declaration(view),
            "application": None if view.batch_only else application.application_of_view(settings, name),
            "columns": columns[name],
            "positions": known[name].positions.plain(),
            **serving_status.serving_fields(answers.get(name)),
        }
        for name, view in declared.items()
    ]
    if as_json:
        print_json({"views": entries, "refused": broken})
    else:
        for entry in entries:
            _show(entry)
        for name, reason in broken.items():
            say(f"{name}  {reason}")
    if broken:
        raise typer.Exit(Exit.UNKNOWN)


def _print_dbt_source(settings: Settings, declared: "dict[str, View]", broken: dict[str, str], as_json: bool) -> None:
    from truelog.reports.dbt_source import dbt_source
    from truelog.storage import db_snapshot

    with db_snapshot.read_snapshot(settings) as connection:
        source = dbt_source(settings, connection, declared)
    print_document(source, as_json)
    _end_with(broken)


def _print_contracts(settings: Settings, declared: "dict[str, View]", broken: dict[str, str], as_json: bool) -> None:
    """Several contracts are several documents of one YAML text."""
    from truelog.reports.contracts.odcs import view_contract
    from truelog.storage import db_snapshot

    with db_snapshot.read_snapshot(settings) as connection:
        found = {name: view_contract(settings, connection, name, view) for name, view in declared.items()}
    contracts = [each for each in found.values() if each is not None]
    if as_json:
        print_json({"contracts": contracts})
    else:
        say("\n---\n".join(json.dumps(each, indent=2, ensure_ascii=False) for each in contracts))
    for name, contract in found.items():
        if contract is None:
            say(f"{name}  no table yet: the stream creates it on its first run", err=True)
    _end_with(broken)


def _end_with(broken: dict[str, str]) -> None:
    """Name the views whose files are broken. The exit code is 3 if there are any."""
    for name, reason in broken.items():
        say(f"{name}  {reason}", err=True)
    if broken:
        raise typer.Exit(Exit.UNKNOWN)


def _declaration(view: "View") -> dict[str, Any]:
    """What the view's file declares."""
    from truelog.tables.side_tables import relation_names

    return {
        "version": view.version,
        "reads": list(view.reads),
        "key": list(view.key),
        "measures": {column: repr(measure) for column, measure in view.measures.items()},
        "presents": relation_names(view),
        "keep": view.keep,
    }


def _declared(settings: Settings, only: list[str]) -> "tuple[dict[str, View], dict[str, str]]":
    """The views by name, and the reason for each broken file; of these views only, if any are given."""
    from truelog.schema import declaration_files
    from truelog.support.errors import BadDeclaration
    from truelog.views import catalogue

    declared, broken = {}, {} if only else declaration_files.misnamed(settings.views_folder)
    for name in only or catalogue.view_names(settings.views_folder):
        try:
            declared[name] = catalogue.load_view(name, settings.views_folder)
        except BadDeclaration as error:
            broken[name] = str(error)
    return declared, broken


def sql(query: Query, seconds: Seconds = 300, as_json: AsJson = False) -> None:
    """Query the archive and views with a SELECT statement. Each event type is a table that contains all its records.

    In invalid records, the `invalid` column is set and the typed columns are NULL. presented.VIEW and views.VIEW are
    what readers see of a view now. No other data can be read.
    """
    from truelog.archive import analyst

    with analyst.run_query(Settings(), query, seconds) as rows:
        if as_json:
            print_json({"columns": rows.columns, "rows": analyst.as_dicts(rows)})
        else:
            with redirect_stdout(StringIO()) as shown:
                rows.show(max_rows=1_000)
            say(shown.getvalue().rstrip("\n"))


def _show(entry: dict[str, Any]) -> None:
    run_by = f"run by {entry['application']}" if entry["application"] else "built once a day"
    facts = f"version {entry['version']}, reads {', '.join(entry['reads'])}, {run_by}"
    facts += f", served by the {entry['layer']} layer" if entry["layer"] else ""
    say(f"  {facts}", title=entry["view"])
    table = Sheet("column", "type", "aggregation", "meaning")
    for column in entry["columns"]:
        aggregation = "key" if column["name"] in entry["key"] else entry["measures"].get(column["name"], "")
        table.add_row(column["name"], column["type"], aggregation, column["comment"] or "")
    if entry["columns"]:
        table.show()
    else:
        say("  no table yet: the stream creates it on its first run")
