"""`truelog doctor`: examines what the platform depends on."""

from typing import TYPE_CHECKING

import typer
from rich.box import SIMPLE

from truelog.cli.output import AsJson, Exit, Sheet, print_json, say
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.doctor.result import Result


def doctor(as_json: AsJson = False) -> None:
    """Examine this machine and the stores: versions, rights, clocks, durability, encryption, topics and free space.

    Nothing is changed. Each problem has its cure. The exit code is 1 if a check has failed.
    """
    from truelog.doctor.areas import AREAS
    from truelog.doctor.result import Outcome

    settings = Settings()
    found: list[Result] = []
    for area in AREAS:
        if not as_json:
            say(f"examining: {area.name}", err=True)
        found += area.examine(settings)
    if as_json:
        print_json({"results": [each.as_dict() for each in found]})
    else:
        _show(found)
    raise typer.Exit(Exit.DIFFERENT if any(each.outcome is Outcome.FAILED for each in found) else Exit.FINE)


def _show(found: "list[Result]") -> None:
    table = Sheet("area", "check", "outcome", "found", box=SIMPLE, padding=(0, 1, 0, 0))
    for each in found:
        table.add_row(each.area, each.check, str(each.outcome), each.found)
    table.show()
    for each in found:
        if each.cure:
            say(each.cure, title=f"{each.area}, {each.check}: ")
