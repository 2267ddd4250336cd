"""`truelog recompute`: rebuilds the partials of views from the archive, day by day."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console

from truelog.cli.naming import Views, named
from truelog.cli.output import AsJson, Exit, print_json
from truelog.support.settings import Settings

_FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]
Days = Annotated[
    list[datetime], typer.Option("--day", formats=_FORMATS, help="The start of a log day in UTC. May be repeated.")
]
Open = Annotated[bool, typer.Option("--open", help="Include a day that is not over yet, as far as it is archived.")]


def recompute(day: Days, views: Views = None, open_: Open = False, as_json: AsJson = False) -> None:
    """Recompute view partials for log days. Rebuilds read partials instead of the archive's records."""
    from truelog.batch.recompute import recompute_all

    settings = Settings()
    chosen = named(settings, views)
    days = [each.replace(tzinfo=UTC) for each in day]
    outcome = recompute_all(settings, chosen, days, unfinished=open_)
    if as_json:
        print_json(outcome.as_dict())
    else:
        console = Console()
        for each in outcome.done:
            console.print(f"{each.view}  {each.covered.day:%Y-%m-%d %H:%M:%S}  {each.rows:,} rows", highlight=False)
        for view, reason in outcome.refused.items():
            console.print(f"{view}  {reason}", highlight=False, markup=False)
    if outcome.refused:
        raise typer.Exit(Exit.UNKNOWN)
