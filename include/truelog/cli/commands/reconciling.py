"""`truelog reconcile` and `truelog recompute`: compare views with their rebuilds, and make the rebuilds' partials."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from truelog.cli.naming import Views, named
from truelog.cli.output import AsJson, Exit, print_json, say
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.batch.recompute import Recomputed

FromRaw = Annotated[bool, typer.Option("--from-raw", help="Parse the raw bytes in the archive again.")]

All = Annotated[bool, typer.Option("--all", help="Reconcile all views. This is the default if no view is named.")]
Repair = Annotated[
    bool, typer.Option("--repair", help="Replace differing rows with the rebuild's rows, and compare again.")
]

Incremental = Annotated[
    bool, typer.Option("--incremental", help="Read only what came since the last proof of a large view, for a day.")
]

Source = Annotated[
    bool, typer.Option("--source", help="Compare the views of captured tables with the tables themselves.")
]

_FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]
Days = Annotated[
    list[datetime], typer.Option("--day", formats=_FORMATS, help="The start of a log day in UTC. May be repeated.")
]
Open = Annotated[bool, typer.Option("--open", help="Include a day that is not over yet, as far as it is archived.")]


def reconcile(  # noqa: PLR0913, PLR0917 — the options of the command
    views: Views = None,
    every: All = False,
    from_raw: FromRaw = False,
    repair: Repair = False,
    incremental: Incremental = False,
    source: Source = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild views from the archive at their exact positions, and compare the views with the rebuilds row by row."""
    from truelog.reconcile.reconcile import reconcile_all
    from truelog.reconcile.reconcile_result import ReconcileRequest, exit_code
    from truelog.storage.audit_trail import by_hand

    settings = Settings()
    if source:
        _compare_with_source(settings, views or [], from_raw or repair or incremental or every, as_json)
    if every and views:
        raise typer.BadParameter("give the names of views or --all, not both")
    if from_raw and incremental:
        raise typer.BadParameter("give --from-raw or --incremental, not both")
    request = ReconcileRequest(from_raw=from_raw, repair=repair, incremental=incremental, doer=by_hand())
    results = reconcile_all(settings, named(settings, views), request)
    if as_json:
        print_json({"views": [result.as_dict() for result in results]})
    else:
        for r in results:
            counts = f"{r.rows:,} rows  {r.missing:,} missing  {r.extra:,} extra  {r.different:,} different"
            counts += f"  {r.repaired:,} repaired" if repair else ""
            say(f"{r.view}  {counts}  {r.verdict}  {r.reason}".rstrip())
            for each in r.causes:
                why = f"  {each['cause']}, {each['rows']:,} rows: {each['about']}"
                say(why)
    raise typer.Exit(exit_code(results))


def _compare_with_source(settings: Settings, views: list[str], has_others: bool, as_json: bool) -> NoReturn:
    """Compare the views of captured tables with their tables, and exit."""
    from truelog.capture import comparison, last_comparison
    from truelog.cli.commands.eventing import captured_type

    if has_others or not views:
        raise typer.BadParameter("give --source with the names of views, and without another option")
    results = [last_comparison.compare(settings, captured_type(settings, view)) for view in views]
    if as_json:
        print_json({"views": [each.as_dict() for each in results]})
    else:
        for r in results:
            counts = f"{r.rows:,} rows  {r.missing:,} missing  {r.extra:,} extra  {r.different:,} different"
            say(f"{r.view}  {counts}  {r.verdict}  {r.reason}".rstrip())
    verdicts = {each.verdict for each in results}
    exits = {comparison.DIFFERENT: Exit.DIFFERENT, comparison.UNKNOWN: Exit.UNKNOWN}
    raise typer.Exit(next((code for verdict, code in exits.items() if verdict in verdicts), Exit.FINE))


def recompute(day: Days, views: Views = None, open_: Open = False, as_json: AsJson = False) -> None:
    """Recompute view partials for log days. Rebuilds read partials instead of the archive's records."""
    from truelog.batch.recomputation import Recomputation
    from truelog.batch.recompute import recompute_all

    settings = Settings()
    chosen = named(settings, views)
    days = [each.replace(tzinfo=UTC) for each in day]

    def report(made: "Recomputed") -> None:
        if not as_json:
            say(f"{made.view}  {made.covered.day:%Y-%m-%d %H:%M:%S}  {made.rows:,} rows")

    by_hand = Recomputation.by_hand(settings)
    outcome = recompute_all(by_hand, chosen, days, unfinished=open_, report=report)
    if as_json:
        print_json(outcome.as_dict())
    else:
        for view, reason in outcome.refused.items():
            say(f"{view}  {reason}")
    if outcome.refused:
        raise typer.Exit(Exit.UNKNOWN)
