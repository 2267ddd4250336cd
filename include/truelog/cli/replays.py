"""`truelog replay` and `truelog replays`: experimental copies of views, beside production."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truelog.cli.difference_output import show_difference
from truelog.cli.naming import named
from truelog.cli.output import MOST_ROWS, AsJson, Sheet, print_json, progress, say
from truelog.cli.times import duration, past_time
from truelog.support.durations import in_words
from truelog.support.errors import BadInput
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.log.positions import Positions
    from truelog.replays.store import Replay

app = typer.Typer(no_args_is_help=True, help="Experimental copies of views: list them, compare one, and drop it.")

View = Annotated[str, typer.Argument(metavar="VIEW", help="The view.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The replay.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME|POSITIONS",
        help='Only records that reached the log after this time, or from these positions on: {"click":{"0":7}}.',
    ),
]
To = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only records until this time; by default, all in the archive.")
]
As = Annotated[str | None, typer.Option("--as", metavar="NAME", help="The name; by default VIEW_replay.")]
Code = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="A file with other code for the view; else its own.")
]
Budget = Annotated[int, typer.Option(min=1, metavar="RECORDS", help="Refuse to read more records than this.")]
Keep = Annotated[str, typer.Option(metavar="DURATION", help="After this time, the replay is dropped.")]
Limit = Annotated[int, typer.Option(min=0, max=MOST_ROWS, help="Maximum number of differing rows to show.")]


def replay(  # noqa: PLR0913, PLR0917 — the options of the command
    view: View,
    begin: From = None,
    to: To = None,
    name: As = None,
    code: Code = None,
    keep: Keep = "7d",
    budget: Budget = 100_000_000,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Make a copy of a view from the archive, with other code if wanted, and compare it with production by key."""
    from truelog.replays import replay as replaying
    from truelog.storage.audit_trail import by_hand

    settings = Settings()
    named(settings, [view])
    wanted = replaying.Wanted(
        view,
        name or f"{view}_replay",
        duration(keep),
        budget,
        _place(begin) if begin else None,
        past_time(to) if to else None,
        code,
    )
    with progress(f"replaying {view}", 1) as done:
        found = replaying.make(settings, wanted, lambda ended, tasks: done(ended / max(tasks, 1)), doer=by_hand())
        done(1)
    try:
        _show(settings, found, limit, as_json=as_json)
    except BadInput as error:  # such as another key
        raise BadInput(f"{found.relation} is made, and kept. {error}") from error
    if not as_json:
        say(f"Query {found.relation} in SQL. `truelog replays show {found.name}` compares it again, and")
        say(f"`truelog replays drop {found.name}` drops it.")


@app.command("list")
def list_replays(as_json: AsJson = False) -> None:
    """List the replays with their views, how far each is, and when it is dropped."""
    from truelog.replays.store import replays
    from truelog.storage.database import connect

    with connect(Settings()) as connection:
        found = replays(connection)
    if as_json:
        print_json({"replays": [each.as_dict() for each in found]})
        return
    table = Sheet("replay", "view", "records", "state", "dropped", "made by")
    for each in found:
        table.add_row(each.name, each.view, f"{each.records:,}", each.state, _dropped(each), each.doer)
    if any(each.abandoned for each in found):
        table.note("Whoever made an abandoned replay was stopped. Make it again, or drop it.")
    table.show()


@app.command()
def show(name: Name, limit: Limit = 20, as_json: AsJson = False) -> None:
    """Compare a replay with the rows that readers of its view see now, by key."""
    from truelog.replays.store import replay_of
    from truelog.storage.database import connect

    settings = Settings()
    with connect(settings) as connection:
        found = replay_of(connection, name)
    _show(settings, found, limit, as_json=as_json)


@app.command()
def drop(name: Name, as_json: AsJson = False) -> None:
    """Drop a replay now."""
    from truelog.replays import store
    from truelog.storage.database import connect
    from truelog.support.errors import NotReady

    with connect(Settings(), autocommit=True) as connection:
        if not store.drop(connection, store.replay_of(connection, name)):
            raise NotReady(f"A query uses the replay {name}, or its rows are being loaded. Drop it again later.")
    if as_json:
        print_json({"dropped": name})
    else:
        say(f"the replay {name} is dropped")


def _place(text: str) -> "datetime | Positions":
    """Positions as certificates and `truelog versions build` print them, or a time."""
    from truelog.log.positions import Positions

    if not text.startswith("{"):
        return past_time(text)
    try:
        found = Positions.from_json(text)
        if any(type(at) is not int or at < 0 for by in found.offsets.values() for at in by.values()):
            raise ValueError("not offsets")
        return found
    except (ValueError, TypeError, AttributeError) as error:
        raise typer.BadParameter(f'{text}: write positions such as {{"click":{{"0":7}}}}') from error


def _show(settings: Settings, found: "Replay", limit: int, *, as_json: bool) -> None:
    from truelog.replays.comparison import compare_with_production

    differs = compare_with_production(settings, found, limit)
    if as_json:
        print_json({**found.as_dict(), "difference": differs.as_dict()})
        return
    part = " of a part of the log" if found.begins else ""
    say(f"{found.records:,} records{part}, dropped {_dropped(found)}", title=f"{found.name}: ")
    if found.left_out:
        say(f"  records left out, because the code fails on them: {found.left_out:,} ({found.left_out_error})")
    show_difference(differs)


def _dropped(replay: "Replay") -> str:
    if replay.abandoned:
        return "soon"
    left = (replay.drop_at - datetime.now(UTC)).total_seconds()
    return f"in {in_words(left)}" if left > 0 else "soon"
