"""`truelog doctor` and `truelog lineage`: examine what the platform depends on, and what its jobs read and write."""

from typing import TYPE_CHECKING

import typer
from rich.box import SIMPLE

from truelog.cli.naming import Views, named
from truelog.cli.output import AsJson, Exit, Sheet, print_json, say
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.doctor.result import Result
    from truelog.lineage.job import Job


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


def lineage(views: Views = None, as_json: AsJson = False) -> None:
    """Show what each job reads and writes, as OpenLineage gets it. Nothing is sent.

    `--json` prints an event for each job, with the columns. If views are named, the jobs of the archive are left out.
    The exit code is 3 if a view cannot be loaded. The reason is printed, and the other jobs are still shown.
    """
    from truelog.batch.batch_context import open_batch
    from truelog.control.application import application_of_view
    from truelog.lineage.job import Catalogue, archiving
    from truelog.lineage.run import static_event

    settings = Settings()
    chosen = named(settings, views)
    with open_batch(settings, "truelog lineage", chosen) as context:
        types = context.event_types
        jobs = [] if chosen else [archiving(settings, types[topic]) for topic in sorted(types)]
        catalogue = Catalogue(settings, context.spark, types)
        jobs += catalogue.of_views(lambda view: application_of_view(settings, view), context.views.compiled)
        events = [static_event(job) for job in jobs] if as_json else []
        refused = context.views.refused
        if as_json:
            print_json({"events": events, "refused": refused})
        else:
            _show_jobs(jobs, refused)
    if refused:
        raise typer.Exit(Exit.UNKNOWN)


def _show_jobs(jobs: "list[Job]", refused: dict[str, str]) -> None:
    table = Sheet("job", "reads", "writes", box=SIMPLE, padding=(0, 1, 0, 0))
    for job in jobs:
        read, written = (
            "\n".join(f"{each.namespace} {each.name}" for each in some) for some in (job.inputs, job.outputs)
        )
        table.add_row(job.name, read, written)
    table.show()
    for view, reason in refused.items():
        say(f"{view}  {reason}")
