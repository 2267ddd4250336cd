"""`truelog lag`: how far each view and the archive are behind the log, with a verdict."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD

from truelog.cli.output import AsJson, Exit, Sheet, print_json, say
from truelog.support.durations import in_words
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.lag.report import LagRow

Readers = Annotated[
    list[str] | None, typer.Argument(metavar="[VIEW]...", help="Views, or archive. By default, all of these.")
]


def lag(views: Readers = None, as_json: AsJson = False) -> None:
    """Show how far each view and the archive are behind the log, by partition, with a verdict and the reason.

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
        _show(rows)
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


def _show(rows: "list[LagRow]") -> None:
    """Print the numbers by reader, followed by the reason for each verdict that is not OK."""
    from truelog.lag import report as lag_report

    table = Sheet(box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("partition", no_wrap=True)
    for name in ("position", "lag", "seconds", "in/s", "out/s"):
        table.add_column(name, justify="right", overflow="fold")  # a truncated number would be a wrong number
    table.add_column("verdict", no_wrap=True)
    for reader, partitions in lag_report.by_reader(rows).items():
        table.add_title(reader)
        for row in partitions:
            numbers = (row.position, row.lag_events, row.lag_seconds, row.rate_in, row.rate_counted)
            table.add_row(f"  {_partition(row)}", *map(_number, numbers), row.verdict)
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
