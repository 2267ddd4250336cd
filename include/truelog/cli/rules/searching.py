"""`truelog searches`: stored searches, and what they have found."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE

from truelog.cli.output import AsJson, Exit, Sheet, print_json, progress, say
from truelog.cli.rules import rule_output
from truelog.cli.rules.rule_output import Begin
from truelog.rules.names import HITS
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.rules.sending import Sent
    from truelog.rules.trial import Trial

Search = Annotated[str, typer.Argument(metavar="SEARCH", help="The name of the search.")]
Query = Annotated[str, typer.Argument(metavar="QUERY", help="What a text must have: see `docs/searches.md`.")]
EventType = Annotated[str, typer.Option("--on", metavar="EVENT_TYPE", help="The events whose texts it searches.")]
Text = Annotated[str | None, typer.Option(help="Search this text instead of the archive.")]
Latest = Annotated[int, typer.Option("--hits", min=0, max=1_000, help="How many hits to show.")]

app = typer.Typer(help="Stored searches, and the events that they have found.", no_args_is_help=True)


@app.command()
def add(search: Search, query: Query, event_type: EventType, as_json: AsJson = False) -> None:
    """Add a search, or change the search of the same name. It searches the events that come from now on.

    A search that is not valid is refused, and the message names the place. The exit code is 1 if the search is in force
    already.
    """
    from truelog.rules import matches, sending

    settings = Settings()
    sources = matches.load_searches(settings, HITS).sources
    fields = {"search": search, "event_type": event_type, "query": query}
    _tell(sending.send(settings, sending.SET_SEARCH, sources, **fields), "added", as_json)


@app.command()
def retire(search: Search, as_json: AsJson = False) -> None:
    """Retire a search. It finds no later events, and its hits stay. The exit code is 1 if it is not in force."""
    from truelog.rules import matches, sending

    settings = Settings()
    sources = matches.load_searches(settings, HITS).sources
    _tell(sending.send(settings, sending.RETIRE_SEARCH, sources, search=search), "retired", as_json)


@app.command("list")
def list_searches(as_json: AsJson = False) -> None:
    """List the versions of searches that the stream has read, with the number of their hits."""
    from truelog.rules import matches, searchbook
    from truelog.storage import db_snapshot

    settings = Settings()
    view = matches.load_searches(settings, HITS)
    with db_snapshot.read_snapshot(settings) as connection:
        known = searchbook.read_searches(connection, HITS, view)
    if as_json:
        print_json({"searches": [each.as_dict() for each in known]})
        return
    table = Sheet("search", "version", "on", "query", "in force", "hits", box=SIMPLE, padding=(0, 1, 0, 0))
    for each in known:
        table.add_row(
            each.search, str(each.version), each.event_type, each.query, rule_output.in_force(each), f"{each.hits:,}"
        )
    table.show()


@app.command()
def show(search: Search, latest: Latest = 10, as_json: AsJson = False) -> None:
    """Show the versions of a search, and its latest hits."""
    from truelog.rules import matches, searchbook
    from truelog.storage import db_snapshot

    settings = Settings()
    view = matches.load_searches(settings, HITS)
    with db_snapshot.read_snapshot(settings) as connection:
        versions = searchbook.of_search(searchbook.read_searches(connection, HITS, view, [search]), search)
        found = searchbook.latest_hits(connection, HITS, search, latest)
    if as_json:
        print_json({"search": search, "versions": [each.as_dict() for each in versions], "hits": found})
        return
    for each in versions:
        say(
            f"version {each.version}  {rule_output.in_force(each)}  {each.hits:,} hits  {each.event_type}: {each.query}"
        )
    for row in found:
        say(f"{row['event_time']}  {row['document']}  {row['snippet']}")


@app.command("try")
def try_search(
    query: Query,
    event_type: EventType,
    text: Text = None,
    begin: Begin = None,
    as_json: AsJson = False,
) -> None:
    """Show what a search would have found in the archive: hits by day, some of them, and the cost.

    Without --from, the last seven days are searched. With --text, only this text is searched, and the exit code is 1 if
    it does not fit.
    """
    from truelog.rules import matches
    from truelog.searches import search
    from truelog.searches.document import Document

    settings = Settings()
    sources = matches.load_searches(settings, HITS).sources
    declared = search.check("tried", event_type, query, sources)
    if text is not None:
        fits = Document(dict.fromkeys(sources[event_type].fields, text)).fits(declared.query)
        print_json({"fits": fits}) if as_json else say("the text fits" if fits else "the text does not fit")
        raise typer.Exit(Exit.FINE if fits else Exit.DIFFERENT)
    from truelog.batch.batch_context import open_view
    from truelog.rules.trial import Asked, search_archive

    since = rule_output.since(begin)
    asked = Asked(event_type, query, since)
    with (
        open_view(settings, "truelog searches", HITS) as (context, compiled),
        progress(f"searching {event_type}", 1) as done,
    ):
        found = search_archive(context, compiled, asked, lambda ended, tasks: done(ended / max(tasks, 1)))
        done(1)
    if as_json:
        print_json(found.as_dict())
    else:
        _show_trial(found)


def _tell(sent: "Sent", done: str, as_json: bool) -> None:
    said = {"search" if name == "rule" else name: value for name, value in sent.as_dict().items()}
    rule_output.tell(sent, said, done, as_json)


def _show_trial(found: "Trial") -> None:
    for day, hits in found.days.items():
        say(f"{day}  {hits:,} hits")
    say(f"{found.hits:,} hits among {found.events:,} events")
    for each in found.samples:
        say(f"{each['time']}  {each['document']}  {each['snippet']}")
    rule_output.say_cost(found)
