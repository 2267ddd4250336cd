"""`truelog patterns`: rules that describe sequences of events, and what they have found."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE

from truelog.cli.output import AsJson, Sheet, print_json, progress, say
from truelog.cli.rules import rule_output
from truelog.cli.rules.rule_output import Begin
from truelog.cli.times import past_time
from truelog.rules.names import MATCHES
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.rules.backtest import Backtest

File = Annotated[Path, typer.Argument(metavar="FILE", help="A rule as text or as JSON: see `docs/patterns.md`.")]
Rule = Annotated[str, typer.Argument(metavar="RULE", help="The name of the rule.")]
End = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="Until when. By default, the end of the archive.")
]
Samples = Annotated[int, typer.Option(min=0, max=1_000, help="How many matches to show with their events.")]
Latest = Annotated[int, typer.Option("--matches", min=0, max=1_000, help="How many matches to show.")]

app = typer.Typer(help="Rules that describe sequences of events, and what they have found.", no_args_is_help=True)


@app.command()
def add(file: File, as_json: AsJson = False) -> None:
    """Add a rule, or change the rule of the same name. It judges the events that come from now on.

    A rule that is not valid is refused, and the message names the place. The exit code is 1 if the rule is in force
    already.
    """
    from truelog.rules import matches, sending

    settings = Settings()
    text = _read(file)
    sent = sending.send(settings, sending.SET, matches.load(settings, MATCHES).sources, definition=text)
    rule_output.tell(sent, sent.as_dict(), "added", as_json)


@app.command()
def retire(rule: Rule, as_json: AsJson = False) -> None:
    """Retire a rule. It judges no later events, and its matches stay. The exit code is 1 if it is not in force."""
    from truelog.rules import matches, sending

    settings = Settings()
    sent = sending.send(settings, sending.RETIRE, matches.load(settings, MATCHES).sources, rule=rule)
    rule_output.tell(sent, sent.as_dict(), "retired", as_json)


@app.command("list")
def list_rules(as_json: AsJson = False) -> None:
    """List the versions of rules that the stream has read, with the number of their matches."""
    from truelog.rules import matches, rulebook
    from truelog.storage import db_snapshot

    settings = Settings()
    view = matches.load(settings, MATCHES)
    with db_snapshot.read_snapshot(settings) as connection:
        known = rulebook.read_rules(connection, MATCHES, view)
        oversized = rulebook.count_oversized(connection, MATCHES)
    if as_json:
        print_json({"rules": [each.as_dict() for each in known], "oversized_entities": oversized})
        return
    table = Sheet("rule", "version", "by", "in force", "rows by outcome", box=SIMPLE, padding=(0, 1, 0, 0))
    for each in known:
        table.add_row(each.rule, str(each.version), each.by, rule_output.in_force(each), _counts(each.outcomes))
    table.show()
    if oversized:
        say(f"{oversized} entities have more than {view.most:,} events in one search, which reads only the first")


@app.command()
def show(rule: Rule, latest: Latest = 10, as_json: AsJson = False) -> None:
    """Show the versions of a rule, and its latest matches."""
    from truelog.rules import matches, rulebook
    from truelog.storage import db_snapshot

    settings = Settings()
    view = matches.load(settings, MATCHES)
    with db_snapshot.read_snapshot(settings) as connection:
        versions = rulebook.of_rule(rulebook.read_rules(connection, MATCHES, view), rule)
        found = rulebook.latest_matches(connection, MATCHES, rule, latest)
    if as_json:
        print_json({"rule": rule, "versions": [each.as_dict() for each in versions], "matches": found})
        return
    say(versions[-1].text.rstrip())
    for each in versions:
        say(f"version {each.version}  {rule_output.in_force(each)}  {_counts(each.outcomes)}")
    for row in found:
        say(f"{row['last_time']}  {row['entity_id']}  {row['outcome']}  {_pairs(row['shown'] or {})}")


@app.command()
def schema(as_json: AsJson = False) -> None:
    """Print the JSON Schema of a rule, by default with one field a line."""
    from truelog.patterns import rule

    if as_json:
        print_json(rule.json_schema())
    else:
        say(json.dumps(rule.json_schema(), indent=2))


@app.command()
def backtest(file: File, begin: Begin = None, end: End = None, samples: Samples = 5, as_json: AsJson = False) -> None:
    """Show what a rule would have found in the archive: matches by day, some of them with their events, and the cost.

    Without --from, the last seven days are searched.
    """
    from truelog.batch.batch_context import open_view
    from truelog.patterns import files
    from truelog.rules import matches
    from truelog.rules.backtest import Asked
    from truelog.rules.backtest import backtest as search

    settings = Settings()
    declared = files.read(_read(file), matches.load(settings, MATCHES).sources)
    since = rule_output.since(begin)
    asked = Asked(declared, since, past_time(end) if end else None, samples)
    with (
        open_view(settings, "truelog patterns", MATCHES) as (context, compiled),
        progress(f"searching for {declared.rule}", 1) as done,
    ):
        found = search(context, compiled, asked, lambda ended, tasks: done(ended / max(tasks, 1)))
        done(1)
    if as_json:
        print_json(found.as_dict())
    else:
        _show_backtest(found)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file}: {error}") from error


def _counts(outcomes: Any) -> str:
    return ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items()) or "none"


def _pairs(shown: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in shown.items())


def _show_backtest(found: "Backtest") -> None:
    for day, by_outcome in found.days.items():
        say(f"{day}  {_counts(by_outcome)}")
    say(f"{found.matches:,} matches among {found.events:,} events of {found.entities:,} entities")
    if found.waiting:
        say(f"{found.waiting:,} more matches wait for the log's clock, which is at {found.clock:%Y-%m-%d %H:%M:%S}")
    if found.too_costly:
        say(f"{found.too_costly:,} entities are too costly to search: they have no matches")
    for each in found.samples:
        say(f"{each['first_time']} to {each['last_time']}  {each['outcome']}  {_pairs(each['shown'])}", title="match ")
        for event in each["events"]:
            place = f"{event['topic']}:{event['partition']}:{event['offset']}"
            say(f"  {event['time']}  {event['step']}  {place}  {_pairs(event['values'])}")
    rule_output.say_cost(found)
