"""What `truelog patterns`, `searches` and `notifications` read and say alike: all three are about rules."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Protocol

import typer

from truelog.cli.output import Exit, print_json, say
from truelog.cli.times import past_time

if TYPE_CHECKING:
    from truelog.archive.reader import ScanCost
    from truelog.rules.sending import Sent

_FIRST_DAYS = 7

Begin = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="From when, by the log's clock: 2h for two hours ago.")
]


class Known(Protocol):
    """A version of a rule, with the times from which and until which it is in force."""

    @property
    def begins(self) -> datetime: ...

    @property
    def ended(self) -> datetime | None: ...


class Searched(Protocol):
    """What was searched in the archive, and for how many seconds."""

    @property
    def events(self) -> int: ...

    @property
    def cost(self) -> "ScanCost": ...

    @property
    def seconds(self) -> float: ...


def since(begin: str | None) -> datetime:
    """The time of `--from`, by default seven days ago."""
    return past_time(begin) if begin else datetime.now(UTC) - timedelta(days=_FIRST_DAYS)


def tell(
    sent: "Sent", as_dict: dict[str, Any], done: str, as_json: bool, applies: str = "when the stream has read it"
) -> NoReturn:
    """Say the outcome of a change of a rule, and exit: 1 if it was refused."""
    if as_json:
        print_json(as_dict)
    elif sent.refused:
        say(sent.refused)
    elif sent.in_log:
        say(f"{sent.rule} is {done}: the change is in the log, and applies {applies}")
    else:
        say(f"{sent.rule} is {done}: the service `commands` has not published the change yet, see `truelog status`")
    raise typer.Exit(Exit.DIFFERENT if sent.refused else Exit.FINE)


def in_force(known: Known) -> str:
    begins = f"since {known.begins:%Y-%m-%d %H:%M:%S}"
    return begins if known.ended is None else f"{begins}, ended {known.ended:%Y-%m-%d %H:%M:%S}"


def say_cost(found: Searched) -> None:
    rate = found.events / max(found.seconds, 0.001)
    say(
        f"read {found.cost.records:,} records in {found.cost.files:,} files ({found.cost.bytes:,} bytes) "
        f"in {found.seconds:.1f} s, {rate:,.0f} events a second"
    )
