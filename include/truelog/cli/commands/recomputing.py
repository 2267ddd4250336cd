"""`truelog recompute`: rebuilds the partials of views from the archive, day by day."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from truelog.cli.naming import Views, named
from truelog.cli.output import AsJson, Exit, print_json
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.batch.recompute import Recomputed

_FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]
Days = Annotated[
    list[datetime], typer.Option("--day", formats=_FORMATS, help="The start of a log day in UTC. May be repeated.")
]
Open = Annotated[bool, typer.Option("--open", help="Include a day that is not over yet, as far as it is archived.")]


def recompute(day: Days, views: Views = None, open_: Open = False, as_json: AsJson = False) -> None:
    """Recompute view partials for log days. Rebuilds read partials instead of the archive's records."""
    from truelog.batch.recomputation import Recomputation
    from truelog.batch.recompute import recompute_all

    settings = Settings()
    chosen = named(settings, views)
    days = [each.replace(tzinfo=UTC) for each in day]
    console = Console()

    def report(made: "Recomputed") -> None:
        if not as_json:
            console.print(f"{made.view}  {made.covered.day:%Y-%m-%d %H:%M:%S}  {made.rows:,} rows", highlight=False)

    by_hand = Recomputation.by_hand(settings)
    outcome = recompute_all(by_hand, chosen, days, unfinished=open_, report=report)
    if as_json:
        print_json(outcome.as_dict())
    else:
        for view, reason in outcome.refused.items():
            console.print(f"{view}  {reason}", highlight=False, markup=False)
    if outcome.refused:
        raise typer.Exit(Exit.UNKNOWN)
