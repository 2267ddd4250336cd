"""`truelog up`, `down` and `status`: the embedded services on this machine."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truelog.cli.commands.streaming import (
    FINE,
    batch_table,
    batch_views,
    streams,
    tables,
    unread_input,
    unread_table,
)
from truelog.cli.forgetting import lacking, unfinished
from truelog.cli.output import AsJson, Exit, Sheet, print_json, say
from truelog.support.settings import ANALYST, ENVIRONMENT_FILE, Settings, default_home

if TYPE_CHECKING:
    from runtime import State

namespace_app = typer.Typer(help="What this environment has on servers that it shares.", no_args_is_help=True)

Services = Annotated[list[str] | None, typer.Argument(help="The services. By default, all services.")]


def up(services: Services = None, as_json: AsJson = False) -> None:
    """Start the services and wait until every service is ready."""
    import runtime
    from runtime import class_archive, own_services

    if unknown := set(services or ()) - set(runtime.EVERY):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: choose from {', '.join(runtime.EVERY)}")
    with runtime.exclusive(default_home()):
        settings = runtime.set_up(default_home())
        own_services.require_wanted(settings, services or ())
        runtime.fetch_jars(settings)
        class_archive.make(settings, retry=False)
        runtime.up(settings, services or runtime.EVERY)
    _show(settings, runtime.status(settings), as_json)


def down(as_json: AsJson = False) -> None:
    """Stop all applications and services. No data is lost."""
    import runtime

    runtime.down(Settings())
    if as_json:
        print_json({"down": True})


def status(as_json: AsJson = False) -> None:
    """Show the state and memory of each service and application, the lag, and how to connect."""
    import runtime

    settings = Settings()
    if not _show(settings, runtime.status(settings), as_json):
        raise typer.Exit(Exit.DIFFERENT)


@namespace_app.callback()
def namespace() -> None:
    """Keep `destroy` a subcommand, although there is only one."""


Confirmed = Annotated[str, typer.Option("--confirm", help="The namespace. Without it, nothing is removed.")]


@namespace_app.command()
def destroy(confirm: Confirmed = "", as_json: AsJson = False) -> None:
    """Remove the environment's topics, groups, rules, principals, slots and roles; not its databases and its bucket.

    Without a confirmation, show what would be removed.
    """
    from runtime import namespace

    settings = Settings()
    if confirm and confirm != settings.namespace:
        raise typer.BadParameter(f"the namespace of {settings.home} is {settings.namespace or 'empty'}")
    found = namespace.destroy(settings) if confirm else namespace.holdings(settings)
    if as_json:
        print_json({"destroyed": bool(confirm), **found.as_dict()})
    else:
        table = Sheet("kind", "name")
        for kind, names in found.as_dict().items():
            for each in names:
                table.add_row(kind.replace("_", " "), each)
        table.show()
        stay = f"{settings.database_name}, {settings.airflow_database} and the bucket {settings.s3_bucket} stay"
        say(f"{'removed' if confirm else 'nothing is removed yet'}; the databases {stay}")
    if not confirm:
        say(f"to remove these names: truelog namespace destroy --confirm {settings.namespace}", err=True)
        raise typer.Exit(Exit.BAD_USE)


def _show(settings: Settings, states: "list[State]", as_json: bool) -> bool:
    """Show the status, and return whether everything is in its desired state."""
    applications, built, connect = streams(settings), batch_views(settings), _connections(settings)
    unread, (erasures, missing) = unread_input(settings), _open_erasures(settings)
    fine = all(state.state == "READY" for state in states) and all(each["state"] in FINE for each in applications)
    fine = fine and not any(unread.values()) and not missing
    if as_json:
        services = [asdict(state) for state in states]
        shown = {"services": services, "streams": applications, "batch_views": built, **unread, "connect": connect}
        print_json({**shown, "unfinished_erasures": erasures, "lacking_erasures": missing})
        return fine
    _table(states).show()
    for table in (*tables(applications), *batch_table(built), *unread_table(unread)):
        table.show()
    if missing:
        say(lacking(missing))
    if erasures:
        say(unfinished(erasures))
    airflow = connect["airflow"]
    lines = [
        f"analysts: {connect['psql']}",
        f"          password: {connect['password']}",
        f"Airflow:  {airflow['url']}",
        *(f"          sign in as {user}, password: {setting}" for user, setting in airflow["passwords"].items()),
    ]
    say("\n".join(lines))
    return fine


def _open_erasures(settings: Settings) -> tuple[int, int]:
    """How many erasures are unfinished, and how many a restored database lacks; 0 if the database is down."""
    from truelog.erasure import hold, ledger
    from truelog.storage import db_snapshot
    from truelog.support.errors import ServiceDown

    try:
        with db_snapshot.read_snapshot(settings) as connection:
            return len(ledger.unfinished(connection)), hold.lacking(connection)
    except ServiceDown:  # the applications' states say so
        return 0, 0


def _connections(settings: Settings) -> dict[str, Any]:
    """Addresses, users, and the name of the setting for each password, but never a password itself."""
    from runtime import airflow

    file = settings.home / ENVIRONMENT_FILE
    server = f"host={settings.database_host} port={settings.database_port} dbname={settings.database_name}"
    users = {user: f"TRUELOG_AIRFLOW_{user.upper()}_PASSWORD in {file}" for user in airflow.ROLES}
    return {
        "psql": f'psql "{server} user={settings.names.in_postgresql(ANALYST)}"',
        "password": f"TRUELOG_ANALYST_PASSWORD in {file}",
        "airflow": {"url": airflow.address(settings), "passwords": users},
    }


def _table(states: "list[State]") -> Sheet:
    table = Sheet("service", "state", "pid", "MB", "address")
    for state in states:
        memory = "" if state.memory_mb is None else f"{state.memory_mb:.0f}"
        table.add_row(state.name, state.state, str(state.pid or ""), memory, state.address)
    total = sum(state.memory_mb or 0 for state in states)
    table.add_section()
    table.add_row("all", "", "", f"{total:.0f}", "")
    table.note("\n".join(f"{state.name}: {state.reason}" for state in states if state.reason))
    return table
