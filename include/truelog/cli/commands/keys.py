"""`truelog key list`, `add` and `revoke`: the API keys of the collector, the API and the lag service."""

from dataclasses import asdict
from typing import Annotated

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
        help="A producer posts events, a reader reads views and metrics, an admin may do anything.",
    ),
]

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
    table = Sheet("key", "role", "made (UTC)", "revoked (UTC)", box=SIMPLE, padding=(0, 1, 0, 0))
    for entry in entries:
        revoked = f"{entry.revoked_at:%Y-%m-%d %H:%M:%S}" if entry.revoked_at else ""
        table.add_row(entry.name, entry.role, f"{entry.made_at:%Y-%m-%d %H:%M:%S}", revoked)
    table.show()


@app.command()
def add(name: Name, role: RoleName, as_json: AsJson = False) -> None:
    """Add a key and print it. The key is shown only once, because the database stores only its hash."""
    from truelog.storage import api_key
    from truelog.storage.audit_trail import by_hand
    from truelog.storage.database import connect
    from truelog.support.errors import BadDeclaration, BadInput

    if role not in tuple(api_key.Role):
        raise typer.BadParameter(f"{role}: choose from {', '.join(api_key.Role)}")
    try:
        with connect(Settings()) as connection:
            key = api_key.add_key(connection, name, api_key.Role(role), by_hand())
    except (BadDeclaration, BadInput) as error:
        raise typer.BadParameter(str(error)) from error
    if as_json:
        print_json({"name": name, "role": role, "key": key})
    else:
        say(key)
        say(f"Services accept the key within {api_key.RELOAD_SECONDS:.0f} s. It is not shown again.", err=True)


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
