"""`truelog application start` and `stop`, `truelog clock confirm`, and the applications in `truelog status`."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from truelog.cli.output import AsJson, Sheet, print_json, say
from truelog.support.durations import in_words
from truelog.support.settings import Settings

FINE = ("RUNNING", "STARTING", "STOPPED")  # states that need no action

Name = Annotated[
    str, typer.Argument(metavar="APPLICATION", help="archive, stream, or an application in TRUELOG_APPLICATIONS.")
]

app = typer.Typer(help="Start and stop applications through Airflow.", no_args_is_help=True)
clock_app = typer.Typer(help="The clock of the log, which decides when rows expire.", no_args_is_help=True)


@app.command()
def start(name: Name, as_json: AsJson = False) -> None:
    """Set the desired state to running. Airflow starts the application and keeps it running.

    An application that RESTS after repeated failures is started at once.
    """
    from truelog.apps import launcher
    from truelog.control.application import RUNNING
    from truelog.storage.audit_trail import by_hand

    settings = _settings_for(name)
    launcher.request_start(settings, name, by_hand())
    _print_desired(name, RUNNING, as_json)


@app.command()
def stop(name: Name, as_json: AsJson = False) -> None:
    """Set the desired state to stopped. Airflow stops the application."""
    from truelog.control import application
    from truelog.storage.audit_trail import by_hand
    from truelog.storage.database import connect

    with connect(_settings_for(name)) as connection:
        application.set_desired(connection, name, application.STOPPED, by_hand())
    _print_desired(name, application.STOPPED, as_json)


def _settings_for(name: str) -> Settings:
    from truelog.control import application

    settings = Settings()
    if name not in application.application_names(settings):
        raise typer.BadParameter(f"{name}: choose from {', '.join(application.application_names(settings))}")
    return settings


def _print_desired(name: str, desired: str, as_json: bool) -> None:
    if as_json:
        print_json({"application": name, "desired": desired})
    else:
        say(f"{name}: the desired state is {desired}. The stream_{name} DAG applies it, and `truelog status` shows it.")


def streams(settings: Settings) -> list[dict[str, Any]]:
    """The health of each application for `truelog status`. If the database does not answer, every state is UNKNOWN."""
    from truelog.control import application
    from truelog.reports import health
    from truelog.support.errors import ServiceDown

    try:
        applications = health.application_health(settings)
    except ServiceDown:
        applications = [health.unknown_health(name) for name in application.application_names(settings)]
    return [asdict(each) for each in applications]


def batch_views(settings: Settings) -> list[dict[str, Any]]:
    """The last and the next build of each batch-only view, or nothing if the database is down."""
    from truelog.serving import build_schedule
    from truelog.storage import db_snapshot
    from truelog.support.errors import ServiceDown
    from truelog.views import catalogue

    try:
        with db_snapshot.read_snapshot(settings) as connection:
            names = catalogue.view_names(settings.views_folder)
            return [asdict(each) for each in build_schedule.build_statuses(settings, connection, names).values()]
    except ServiceDown:  # the applications' states say so
        return []


def batch_table(views: list[dict[str, Any]]) -> list[Sheet]:
    """A table of the batch-only views, if there are any."""
    table = Sheet("batch-only view", "built (UTC)", "next build (UTC)", "reason")
    for each in views:
        built = each["built_at"].strftime("%Y-%m-%d %H:%M:%S") if each["built_at"] else "not yet"
        table.add_row(each["view"], built, f"{each['next_build']:%Y-%m-%d %H:%M}", each["reason"])
    return [table] if views else []


def unread_input(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """The topics that are suspended and the event files that cannot be used, or nothing if the database is down."""
    from truelog.reports import input as input_report
    from truelog.support.errors import ServiceDown

    try:
        found = input_report.input_report(settings)
    except ServiceDown:  # the applications' states say so
        found = input_report.InputReport()
    shown = asdict(found)
    return {name: list(rows) for name, rows in shown.items()}


def unread_table(unread: dict[str, list[dict[str, Any]]]) -> list[Sheet]:
    """A table of the input that is not read, if there is any."""
    table = Sheet("input that is not read", "by", "since", "reason")
    for each in unread["suspended_topics"]:
        table.add_row(f"topic {each['topic']}", each["application"], f"{each['since']:%H:%M:%S}", each["reason"])
    for each in unread["broken_event_files"]:
        table.add_row(f"file {each['event']}.py", "all", f"{each['since']:%H:%M:%S}", each["reason"])
    return [table] if table.row_count else []


def tables(streams: list[dict[str, Any]]) -> list[Sheet]:
    """The table of applications and the table of their views."""
    applications = Sheet("application", "state", "pid", "MB", "lag events", "lag seconds", "last batch")
    views = Sheet("view", "run by", "state", "lag events", "lag seconds", "reason")
    for each in streams:
        memory = "" if each["memory_mb"] is None else f"{each['memory_mb']:.0f}"
        at = each["batch_at"].strftime("%H:%M:%S") if each["batch_at"] else ""
        applications.add_row(each["application"], each["state"], str(each["pid"] or ""), memory, *_lag(each), at)
        starting = [view for view in each["views"] if view["state"] == "STARTING"]
        if len(starting) > 1:  # the first start: one row instead of a wall
            views.add_row(f"{len(starting)} views", each["application"], "STARTING", "", "", "they are being created")
        for view in (view for view in each["views"] if len(starting) < 2 or view["state"] != "STARTING"):
            views.add_row(view["view"], each["application"], view["state"], *_lag(view), view["reason"])
    applications.note("\n".join(_lag_notes(streams)))
    return [applications, views]


def _lag_notes(streams: list[dict[str, Any]]) -> list[str]:
    """The age of the lag that is shown, and the reasons for lag that is not shown."""
    ages = [each["lag_age"] for each in streams if each["lag_age"] is not None and not each["reason"]]
    shown = [f"lag sampled up to {in_words(max(ages))} ago"] if ages else []
    return shown + sorted({f"lag unknown: {each['reason']}" for each in streams if each["reason"]})


def _lag(each: dict[str, Any]) -> tuple[str, str]:
    events, seconds = each["lag_events"], each["lag_seconds"]
    return "" if events is None else f"{events:,}", "" if seconds is None else f"{seconds:.1f}"


@clock_app.callback()
def clock() -> None:
    """Keep `confirm` a subcommand, although there is only one."""


@clock_app.command()
def confirm(as_json: AsJson = False) -> None:
    """Confirm that the machine's clock is right after a jump of more than a day, so that rows expire again."""
    from truelog.log import clock_guard
    from truelog.storage.audit_trail import by_hand
    from truelog.storage.database import connect

    with connect(Settings()) as connection:
        hold = clock_guard.confirm_jump(connection, by_hand())
    if as_json:
        newest, machine = (hold.newest, hold.machine) if hold else (None, None)
        print_json({"held": hold is not None, "newest": newest, "machine": machine})
    elif hold is None:
        say("the clock of the log has not jumped")
    else:
        say(f"confirmed: the clock of the log goes from {hold.newest} to {hold.machine}")
