"""`truelog versions`: build a new version of a view beside what readers see, compare both, and move the readers."""

from typing import TYPE_CHECKING, Annotated

import typer

from truelog.cli.difference_output import show_difference
from truelog.cli.naming import named
from truelog.cli.output import MOST_ROWS, AsJson, Exit, Sheet, print_json, say
from truelog.support.durations import in_words
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.versions.cut_over import Move
    from truelog.versions.version_state import VersionState

app = typer.Typer(no_args_is_help=True, help="Move readers between the versions of a view, with proof and a way back.")

View = Annotated[str, typer.Argument(metavar="VIEW", help="The view.")]
Views = Annotated[list[str] | None, typer.Argument(metavar="[VIEW]...", help="Only these views.")]
To = Annotated[
    int | None, typer.Option("--version", help="The version; by default the version that the file declares.")
]
From = Annotated[int | None, typer.Option("--from", help="The version to compare with; by default what readers see.")]
Limit = Annotated[int, typer.Option(min=0, max=MOST_ROWS, help="Maximum number of differing rows to show.")]


@app.command("list")
def list_versions(views: Views = None, as_json: AsJson = False) -> None:
    """List the versions of views: who sees each, its progress, and its last comparison."""
    from truelog.storage.database import connect
    from truelog.versions.version_state import version_states

    settings = Settings()
    with connect(settings) as connection:
        found = version_states(settings, connection, views or None)
    proof = settings.cut_over_proof_seconds
    if as_json:
        print_json({"versions": [each.as_dict(proof) for each in found]})
        return
    table = Sheet("view", "version", "stage", "share", "rows", "behind", "last comparison", "relation")
    for each in found:
        stage = f"{each.stage(proof)}{' (held)' if each.held else ''}"
        share = f"{each.share} %" if each.share else ""
        cells = each.view, str(each.version), stage, share, f"{each.rows:,}", f"{each.behind:,}", _comparison(each)
        table.add_row(*cells, each.relation)
    table.show()


@app.command()
def diff(view: View, one: From = None, other: To = None, limit: Limit = 20, as_json: AsJson = False) -> None:
    """Compare the rows of two versions by key, as readers see them. The exit code is 1 if they differ."""
    from truelog.storage.database import connect
    from truelog.versions.cut_over import serving
    from truelog.versions.difference import difference
    from truelog.versions.version_state import version_states

    settings = Settings()
    with connect(settings) as connection:
        states = version_states(settings, connection, [view])
    left = serving(view, states).version if one is None else one
    declared = [each.version for each in states if each.declared]
    if other is None and not declared:
        raise typer.BadParameter("no application has deployed the declared version yet: give --version")
    found = difference(settings, view, left, declared[0] if other is None else other, limit)
    if as_json:
        print_json(found.as_dict())
    else:
        show_difference(found, "Repeat the command.")
    raise typer.Exit(Exit.FINE if found.equal else Exit.DIFFERENT)


@app.command()
def build(views: Views = None, as_json: AsJson = False) -> None:
    """Build the declared versions of views from the archive and prove them, as the DAG `cut_over` does.

    Readers do not move. The exit code is 1 if they cannot move to one of these versions.
    """
    from truelog.storage.audit_trail import by_hand
    from truelog.versions.build import build_versions, views_due

    settings = Settings()
    due = named(settings, views) or views_due(settings)

    def report(line: str) -> None:
        if not as_json:
            say(line)

    built = build_versions(settings, due, report, moves=False, doer=by_hand()) if due else []
    if as_json:
        print_json({"versions": [each.as_dict() for each in built]})
    else:
        for each in built:
            say(each.reason or "readers can move to it", title=f"{each.view} version {each.version}: ")
    raise typer.Exit(Exit.DIFFERENT if any(each.reason for each in built) else Exit.FINE)


@app.command("cut-over")
def cut_over(view: View, version: To = None, as_json: AsJson = False) -> None:
    """Move readers to a version that is built and proved EQUAL, in one transaction."""
    from truelog.storage.audit_trail import by_hand
    from truelog.versions import cut_over as command

    _moved(command.cut_over(Settings(), view, version, doer=by_hand()), as_json=as_json)


@app.command()
def share(
    view: View,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="The version.")],
    percent: Annotated[int, typer.Argument(metavar="PERCENT", min=0, max=100, help="0 takes the share back.")],
    as_json: AsJson = False,
) -> None:
    """Let a percentage of the API's readers get a version that is built and proved EQUAL, before a cut-over."""
    from truelog.storage.audit_trail import by_hand
    from truelog.versions import share as command

    made = command.share(Settings(), view, version, percent, doer=by_hand())
    if as_json:
        print_json({"view": made.view, "version": made.version, "percent": made.percent})
    else:
        say(f"{made.percent} % of the API's readers of {made.view} get version {made.version}")


@app.command()
def back(view: View, as_json: AsJson = False) -> None:
    """Move readers back to the version that they saw before. They return to the other one only on request."""
    from truelog.storage.audit_trail import by_hand
    from truelog.versions import cut_over as command

    _moved(command.back(Settings(), view, doer=by_hand()), as_json=as_json)


@app.command()
def drop(
    view: View, version: Annotated[int, typer.Argument(metavar="VERSION", help="The version.")], as_json: AsJson = False
) -> None:
    """Drop a version that readers do not see and the view's file does not declare. There is no way back to it then."""
    from truelog.storage.audit_trail import by_hand
    from truelog.versions import drop as command

    command.drop(Settings(), view, version, doer=by_hand())
    if as_json:
        print_json({"view": view, "dropped": version})
    else:
        say(f"version {version} of {view} is dropped")


def _moved(move: "Move", *, as_json: bool) -> None:
    if as_json:
        print_json({"view": move.view, "version": move.version, "former": move.former})
    else:
        say(f"readers of {move.view} see version {move.version} now, and saw version {move.former} before")


def _comparison(state: "VersionState") -> str:
    return f"{state.verdict}, {in_words(state.verdict_age)} ago" if state.verdict_age is not None else "none"
