"""`truelog lag` and `truelog output`: how far views, the archive and output topics are behind, with a verdict."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD

from truelog.cli.output import AsJson, Exit, Sheet, print_json, say
from truelog.cli.times import past_time
from truelog.support.durations import in_words
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.lag.report import LagRow

Readers = Annotated[
    list[str] | None, typer.Argument(metavar="[VIEW]...", help="Views, or archive. By default, all of these.")
]

View = Annotated[str, typer.Argument(metavar="VIEW", help="A view that declares `publish`.")]

Begin = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="NUMBER|TIME",
        help="The last `truelog.number` that the consumer still has, or a time before the loss, such as "
        "2026-03-01T12:00:00Z or 2h.",
    ),
]
Key = Annotated[
    list[str] | None,
    typer.Option(metavar="CONDITION", help="Only rows whose key fits, such as 'cart_id=c1'. May be repeated."),
]

output_app = typer.Typer(help="Output topics: the changed rows of the views that publish them.", no_args_is_help=True)


Partitions = Annotated[bool, typer.Option("--partitions", help="Show each partition, as for named views.")]


def lag(views: Readers = None, partitions: Partitions = False, as_json: AsJson = False) -> None:
    """Show how far each view and the archive are behind the log, with a verdict and the reason.

    Named views are shown by partition.

    The exit code is 0 if all verdicts are OK, 1 if any verdict is neither OK nor UNKNOWN, and otherwise 3.
    """
    from truelog.cli.naming import named
    from truelog.control.application import ARCHIVE
    from truelog.lag import report as lag_report
    from truelog.lag.verdict import LagVerdict

    settings = Settings()
    named(settings, [view for view in views or () if view != ARCHIVE])
    rows = lag_report.lag_rows_now(settings, _with_lag(settings, views or ()))
    if as_json:
        print_json({"lag": [asdict(row) for row in rows]})
    else:
        _show(rows, by_partition=partitions or bool(views))
    verdicts = {row.verdict for row in rows}
    if verdicts - {LagVerdict.OK, LagVerdict.UNKNOWN}:
        raise typer.Exit(Exit.DIFFERENT)
    if LagVerdict.UNKNOWN in verdicts:
        raise typer.Exit(Exit.UNKNOWN)


def _with_lag(settings: Settings, views: list[str] | tuple[str, ...]) -> list[str]:
    """The same readers, after a check that no batch-only view is among them."""
    from truelog.control import view_tables
    from truelog.storage import db_snapshot

    with db_snapshot.read_snapshot(settings) as connection:
        batch_only = view_tables.batch_only_views(connection)
    if without := [view for view in views if view in batch_only]:
        raise typer.BadParameter(f"{', '.join(without)}: no stream runs this view, so it has no lag")
    return list(views)


def _show(rows: "list[LagRow]", by_partition: bool) -> None:
    """Print the numbers by reader, followed by the reason for each verdict that is not OK."""
    from truelog.lag import report as lag_report

    numbers = ("lag", "seconds", "in/s", "out/s")
    table = Sheet(box=SIMPLE_HEAD, padding=(0, 1) if not by_partition else 0, show_edge=False)
    table.add_column("partition" if by_partition else "reader", no_wrap=True)
    for name in ("position", *numbers) if by_partition else numbers:
        table.add_column(name, justify="right", overflow="fold")  # a truncated number would be a wrong number
    table.add_column("verdict", no_wrap=True)
    for reader, found in lag_report.by_reader(rows).items():
        if by_partition:
            table.add_title(reader)
            for row in found:
                shown = (row.position, row.lag_events, row.lag_seconds, row.rate_in, row.rate_counted)
                table.add_row(f"  {_partition(row)}", *map(_number, shown), row.verdict)
        else:
            rates = lag_report.total(row.rate_in for row in found), lag_report.total(row.rate_counted for row in found)
            total = lag_report.lag_events(found), lag_report.freshness(found), *rates
            table.add_row(reader, *map(_number, total), lag_report.worst(found).verdict)
    table.show()
    ages = [row.sample_age for row in rows if row.sample_age is not None and row.lag_events is not None]
    if ages:
        say(f"Sampled up to {in_words(max(ages))} ago.")
    for row in rows:
        if row.verdict != "OK":
            reason = f"{row.reader} {_partition(row)}".strip() + f": {row.verdict}, {row.reason}"
            remaining = f"; caught up in {in_words(row.caught_up_in)}" if row.caught_up_in else ""
            say(reason + remaining)


def _partition(row: "LagRow") -> str:
    return "" if row.topic is None else f"{row.topic} {row.partition}"


def _number(value: float | None) -> str:
    """Format a number. Small numbers have one decimal place."""
    if value is None:
        return ""
    return f"{value:,.1f}" if isinstance(value, float) and value < 100 else f"{value:,.0f}"


@output_app.command("list")
def list_outputs(as_json: AsJson = False) -> None:
    """Show each output topic, and how many rows wait for it. The exit code is 1 if one is not OK."""
    from truelog.lag import output_lag
    from truelog.storage import db_snapshot

    settings = Settings()
    with db_snapshot.read_snapshot(settings) as connection:
        found = [_answer(each, *output_lag.assess(each, settings)) for each in output_lag.outputs(connection)]
    if as_json:
        print_json({"outputs": found})
    else:
        _show_outputs(found)
    raise typer.Exit(Exit.FINE if all(each["verdict"] == "OK" for each in found) else Exit.DIFFERENT)


@output_app.command()
def resync(view: View, as_json: AsJson = False) -> None:
    """Begin an output again with the whole table, after a restore from a backup. The relay then publishes it."""
    from truelog.maintenance import resync as command
    from truelog.relay.view_feed import topic_of
    from truelog.storage.audit_trail import by_hand

    version = command.resync(Settings(), view, by_hand())
    if as_json:
        print_json({"view": view, "version": version, "topic": topic_of(view, version)})
    else:
        say(f"{topic_of(view, version)} begins again with the whole table")


@output_app.command()
def resend(view: View, begin: Begin = None, key: Key = None, as_json: AsJson = False) -> None:
    """Publish rows again, for a consumer that has lost what it read. The relay then publishes them.

    The rows that changed after the number or the time are published as they are now, and each row that vanished as a
    tombstone. Consumers that have lost nothing get rows that they have. See `docs/outputs.md`.
    """
    from truelog.exports import resend as command
    from truelog.exports.query import Condition
    from truelog.storage.audit_trail import by_hand

    after = None if begin is None else int(begin) if begin.isdecimal() else past_time(begin)
    wanted = command.Wanted(view, after, [Condition.parse(each) for each in key or ()])
    sent = command.resend(Settings(), wanted, by_hand())
    if as_json:
        print_json(sent.as_dict())
    else:
        numbers = f"numbers {sent.first:,} to {sent.last:,}" if sent.rows + sent.removed else "nothing changed"
        say(f"{sent.topic}: {sent.rows:,} rows and {sent.removed:,} tombstones again, {numbers}")


def _answer(lag: Any, verdict: str, reason: str) -> dict[str, Any]:
    from truelog.relay.view_feed import topic_of

    return {
        "view": lag.view,
        "version": lag.version,
        "topic": topic_of(lag.view, lag.version),
        "number": lag.number,
        "sent": lag.sent,
        "waiting_rows": lag.rows,
        "waiting_seconds": lag.seconds,
        "verdict": str(verdict),
        "reason": reason,
    }


def _show_outputs(found: list[dict[str, Any]]) -> None:
    table = Sheet("topic", "number", "waiting rows", "oldest", "verdict", "reason")
    for each in found:
        oldest = in_words(each["waiting_seconds"]) if each["waiting_rows"] else ""
        cells = each["topic"], f"{each['number']:,}", f"{each['waiting_rows']:,}", oldest, each["verdict"]
        table.add_row(*cells, each["reason"])
    table.show()
