"""`truelog archive audit`, `accept-loss` and `adopt`: check the archive, accept a loss, or restore its catalog."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from truelog.cli.forgetting import unfinished
from truelog.cli.output import AsJson, Exit, print_json, say
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.archive.adopt import Adoption

Deep = Annotated[
    bool, typer.Option("--deep", help="Compare every record that Kafka still has with the archive, byte by byte.")
]
OneTable = Annotated[
    str | None, typer.Argument(metavar="[TABLE]", help="Adopt only this table, such as log.page_view.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Prove and report the newest versions, but change nothing.")]

CutTopic = Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only this topic. By default, all topics.")]

app = typer.Typer(help="The archive of every record of every topic.", no_args_is_help=True)


@app.command()
def audit(deep: Deep = False, as_json: AsJson = False) -> None:
    """Check the archive against the files in the bucket and the broker offsets."""
    from truelog.archive import audit_evidence

    report = audit_evidence.run_audit(Settings(), deep=deep)
    if as_json:
        print_json(report.as_dict())
    else:
        for fault in report.faults:
            say(fault)
        for topic in report.gone:
            say(f"{topic}: Kafka has no such topic. The archive contains {report.records(topic):,} records of it")
        facts = f"{report.records():,} records in {len(report.partitions)} partitions, {report.orphans} orphaned files"
        say(f"{report.verdict}  {facts}")
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
        say(f"{each.topic} {each.partition}: [{each.start}, {each.end}) is recorded as lost")
    if not accepted:
        say("nothing is lost")


@app.command()
def adopt(table: OneTable = None, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """After PostgreSQL was restored from a backup, point its catalog at the newest tables in the bucket.

    Event versions that only the bucket contains, and replays and erasures that only the log contains, are added to the
    database.
    """
    from truelog.archive.adopt import adopt_event_versions, adopt_newest
    from truelog.dead_letters import ledger as replay_ledger
    from truelog.forgetting import forget

    def report(adopted: "Adoption") -> None:
        if not as_json:
            say(_describe(adopted, dry_run))

    settings = Settings()
    types = adopt_event_versions(settings, dry_run=dry_run)
    for event in types if not as_json else ():
        say(f"{event}: event versions {'would come' if dry_run else 'came'} from the bucket")
    done = adopt_newest(settings, table, report, dry_run=dry_run)
    if table and not done:
        raise typer.BadParameter(f"neither the catalog nor the bucket has a table {table}")
    replays = 0 if dry_run or table else replay_ledger.restore(settings)
    erasures = 0 if dry_run or table else forget.restore_ledger(settings)
    if as_json:
        tables = [each.as_dict() for each in done]
        counts = {"replays": replays, "unfinished_erasures": erasures}
        print_json({"dry_run": dry_run, "event_types": types, "tables": tables, **counts})
        return
    if replays:
        say(f"{replays:,} replays of dead letters came from the log")
    if erasures:
        say(unfinished(erasures))


def _describe(adopted: "Adoption", dry_run: bool) -> str:
    if adopted.newest is None:
        outcome = "no complete version; recompute makes it again"
    elif adopted.changed:
        outcome = f"{'would be' if dry_run else 'is'} at {adopted.newest}, was at {adopted.before or 'nothing'}"
    else:
        outcome = "is at its newest version"
    days = f"; {adopted.log_days} log days were missing" if adopted.log_days else ""
    rejected = "".join(f"\n  not adopted: {each}" for each in adopted.rejected)
    return f"{adopted.table}: {outcome}{days}{rejected}"


@app.command("accept-cut")
def accept_cut(topic: CutTopic = None, as_json: AsJson = False) -> None:
    """Continue in a log that has lost records which were read already. Stop all applications first."""
    from truelog.maintenance.accept_cut import AcceptedCut, accept_cuts

    def report(cut: AcceptedCut) -> None:
        if not as_json:
            say(
                f"{cut.topic} {cut.partition}: cut at {cut.cut_at}, read again from {cut.trusted_from} on; "
                f"{cut.moved} records were appended again, {cut.lost} records are lost"
            )
            for view in cut.views:
                say(f"  {view} has counted other records than the archive: run `truelog reconcile {view} --repair`")

    accepted = accept_cuts(Settings(), topic, report)
    if as_json:
        print_json({"accepted": [each.as_dict() for each in accepted]})
    elif not accepted:
        say("no cut is open")
