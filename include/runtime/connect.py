"""Kafka Connect, which captures tables of another database. Optional: `TRUELOG_CAPTURE=true` starts it."""

import logging
import sys
from pathlib import Path

import psycopg

from runtime import keeper, source_database
from runtime.service import Service
from truelog.capture import connector, epochs, source_table, worker
from truelog.schema.event import EventType
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.files import write_private
from truelog.support.settings import Settings

log = logging.getLogger("truelog.runtime")


def configure(settings: Settings) -> None:
    """Write the worker's files, and a file for each table that can be captured. A bad table stops no other."""
    settings.jars("connect")
    connector.write_worker(settings)
    types = source_table.captured_types(settings)
    if not settings.source_host:
        source_database.prepare(settings, types.values())
    reasons = _reasons(settings, types)
    with connect(settings, autocommit=True) as connection:
        epochs.record_refused(connection, reasons)
        captured = [name for name, reason in reasons.items() if reason is None]
        numbers = {name: epochs.begin(connection, name, max(1, epochs.newest(settings, name))) for name in captured}
    for former in _files(settings):
        former.unlink()
    for name, reason in reasons.items():
        if reason is not None:
            log.error("%s is not captured: %s", name, reason)
        else:
            chosen = connector.configuration(settings, types[name], numbers[name])
            write_private(connector.file(settings, name), connector.properties(chosen))


def _reasons(settings: Settings, types: dict[str, EventType]) -> dict[str, str | None]:
    """For each table, why it cannot be captured, or None."""
    try:
        with psycopg.connect(**settings.source(), autocommit=True, connect_timeout=10) as source:
            return {name: source_table.problem(source, settings.names, each) for name, each in types.items()}
    except psycopg.OperationalError as error:
        raise ServiceDown(f"the captured database does not answer: {error}") from error


def ready(settings: Settings) -> None:
    """Raise ServiceDown unless Connect answers. A failed connector does not hold up a start.

    Connect itself makes the connectors whose files exist when it starts, and takes no other requests until then. On a
    busy machine, that takes minutes.
    """
    found = worker.ask(settings, "GET", "/connectors")
    began = keeper.state(settings, "connect")["start"]  # in whole seconds
    own = {each.stem for each in _files(settings) if int(each.stat().st_mtime) <= began}
    if found is None or not own <= set(found):
        raise ServiceDown("it has not made its connectors yet")


def prepare(settings: Settings) -> None:
    """Let a Connect that already ran take the changed connectors."""
    connectors, types = _connectors(settings), source_table.captured_types(settings)
    with connect(settings, autocommit=True) as connection:
        for name in sorted(filter(None, map(settings.names.name_of, connectors))):
            worker.apply(settings, connector.configuration(settings, types[name], epochs.begin(connection, name)))
    for name in set(worker.ask(settings, "GET", "/connectors")) - connectors:
        worker.ask(settings, "DELETE", f"/connectors/{name}")


def _connectors(settings: Settings) -> set[str]:
    """The connectors that have a file."""
    return {each.stem for each in _files(settings)}


def _files(settings: Settings) -> list[Path]:
    return list(connector.connectors(settings).glob("*.properties"))


def address(settings: Settings) -> str:
    return f"127.0.0.1:{settings.connect_port}"


SERVICE = Service(
    name="connect",
    configure=configure,
    command=lambda _: [sys.executable, "-m", "runtime.connect_process"],
    ready=ready,
    prepare=prepare,
    address=address,
    ports=lambda settings: (settings.connect_port,),
    environment=lambda settings: {"TRUELOG_HOME": str(settings.home), "TRUELOG_JARS": str(settings.jars_home)},
    after=("postgresql", "kafka"),
    is_wanted=lambda settings: settings.capture,
)
