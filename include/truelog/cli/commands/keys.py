"""`truelog key list`, `add` and `revoke`: the API keys of the collector, the API and the lag service."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE

from truelog.cli.output import AsJson, Sheet, print_json, say
from truelog.support.settings import Settings

Name = Annotated[str, typer.Argument(metavar="NAME", help="The key name. It may contain a-z, 0-9, _ and -.")]
RoleName = Annotated[
    str,
    typer.Option(
        "--role",
        metavar="ROLE",
        help="A producer posts events, an editor also changes rules and searches, a reader reads views and metrics, an "
        "archivist loads the archive's tables, a browser sends some events from its pages, an admin may do anything.",
    ),
]
Origins = Annotated[
    list[str], typer.Option("--origin", metavar="ORIGIN", help="An origin of the pages that hold a browser's key.")
]
Types = Annotated[
    list[str], typer.Option("--type", metavar="TYPE", help="An event type that a browser's key may send.")
]
NONE: list[str] = []

if TYPE_CHECKING:
    from truelog.storage.api_key import Page

app = typer.Typer(help="The API keys of the collector, the API and the lag service.", no_args_is_help=True)


@app.command("list")
def list_keys(as_json: AsJson = False) -> None:
    """List all keys, including revoked keys. Secrets are not stored, so they cannot be shown."""
    from truelog.storage import api_key, db_snapshot

    with db_snapshot.read_snapshot(Settings()) as connection:
        entries = api_key.list_keys(connection)
    if as_json:
        print_json({"keys": [asdict(entry) for entry in entries]})
        return
    table = Sheet("key", "role", "made (UTC)", "revoked (UTC)", "may send", "from", box=SIMPLE, padding=(0, 1, 0, 0))
    for entry in entries:
        revoked = f"{entry.revoked_at:%Y-%m-%d %H:%M:%S}" if entry.revoked_at else ""
        made = f"{entry.made_at:%Y-%m-%d %H:%M:%S}"
        table.add_row(entry.name, entry.role, made, revoked, " ".join(entry.event_types), " ".join(entry.origins))
    table.show()


@app.command()
def add(name: Name, role: RoleName, origin: Origins = NONE, type_: Types = NONE, as_json: AsJson = False) -> None:
    """Add a key and print it. The key is shown only once, because the database stores only its hash."""
    from truelog.storage import api_key
    from truelog.storage.audit_trail import by_hand
    from truelog.storage.database import connect
    from truelog.support.errors import BadDeclaration, BadInput

    if role not in tuple(api_key.Role):
        raise typer.BadParameter(f"{role}: choose from {', '.join(api_key.Role)}")
    try:
        page = _page(Settings(), origin, type_) if origin or type_ else None
        with connect(Settings()) as connection:
            key = api_key.add_key(connection, name, api_key.Role(role), by_hand(), page)
    except (BadDeclaration, BadInput, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    if as_json:
        print_json({"name": name, "role": role, "key": key})
    else:
        say(key)
        say(f"Services accept the key within {api_key.RELOAD_SECONDS:.0f} s. It is not shown again.", err=True)


def _page(settings: Settings, origins: list[str], types: list[str]) -> "Page":
    """What a browser's key permits. Raises ValueError if an origin or an event type cannot be used."""
    from truelog.control import event_registry
    from truelog.storage.api_key import Page
    from truelog.support.origins import require_origin

    public = {name for name, each in event_registry.event_types(settings).items() if not each.topic.internal}
    if unknown := [name for name in types if name not in public]:
        raise ValueError(f"{', '.join(unknown)}: choose from {', '.join(sorted(public))}")
    return Page(tuple(map(require_origin, origins)), tuple(types))


@app.command()
def revoke(name: Name, as_json: AsJson = False) -> None:
    """Revoke a key. The key name cannot be used again."""
    from truelog.storage import api_key
    from truelog.storage.audit_trail import by_hand
    from truelog.storage.database import connect
    from truelog.support.errors import BadInput

    try:
        with connect(Settings()) as connection:
            entry = api_key.revoke_key(connection, name, by_hand())
    except BadInput as error:
        raise typer.BadParameter(str(error)) from error
    if as_json:
        print_json(asdict(entry))
    else:
        say(f"{name} is revoked. Services reject the key within {api_key.RELOAD_SECONDS:.0f} s.")
