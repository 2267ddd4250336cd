"""`truelog archive audit` and `accept-loss`: check that the archive is complete, or accept a loss of records."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from truelog.cli.output import AsJson, Exit, print_json
from truelog.support.settings import Settings

Deep = Annotated[
    bool, typer.Option("--deep", help="Compare every record that Kafka still has with the archive, byte by byte.")
]

app = typer.Typer(help="The archive of every record of every topic.", no_args_is_help=True)


@app.command()
def audit(deep: Deep = False, as_json: AsJson = False) -> None:
    """Check the archive against the files in the bucket and the broker offsets."""
    from truelog.archive import audit_evidence

    report = audit_evidence.run_audit(Settings(), deep=deep)
    if as_json:
        print_json(report.as_dict())
    else:
        console = Console()
        for fault in report.faults:
            console.print(fault, highlight=False, markup=False, soft_wrap=True)
        records = sum(file.records for each in report.partitions for file in each.files)
        facts = f"{records:,} records in {len(report.partitions)} partitions, {report.orphans} orphaned files"
        console.print(f"{report.verdict}  {facts}", highlight=False)
    if report.faults:
        raise typer.Exit(Exit.DIFFERENT)


@app.command("accept-loss")
def accept_loss(as_json: AsJson = False) -> None:
    """Accept the loss of records that the log dropped before they were archived. The archive continues after them."""
    from truelog.archive import accept_loss

    accepted = accept_loss.accept_lost_ranges(Settings())
    if as_json:
        print_json({"lost": [asdict(each) for each in accepted]})
        return
    for each in accepted:
        typer.echo(f"{each.topic} {each.partition}: [{each.start}, {each.end}) is recorded as lost")
    if not accepted:
        typer.echo("nothing is lost")
