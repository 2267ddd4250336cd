"""`truelog import access-log`: sends past traffic to Kafka as events."""

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from truelog.cli.output import AsJson, print_json, progress, say
from truelog.sources.access_log import kept_aside
from truelog.support.errors import BadInput, NotSetUp
from truelog.support.files import private_folder
from truelog.support.settings import ENVIRONMENT_FILE, Settings

app = typer.Typer(help="Import past traffic as events.", no_args_is_help=True)

LogFile = Annotated[
    Path,
    typer.Argument(exists=True, dir_okay=False, readable=True, help="The log file, plain or gzip-compressed."),
]
Host = Annotated[str, typer.Option(help="The site that the log belongs to, as `shop.example` or `https://…`.")]

_LONGEST_NAME = 200  # bytes of the log's name that the name of a file contains
_STEP = 500  # lines between two updates of the progress bar


@dataclass
class Imported:
    """The result: the number of lines that were read, sent and malformed, or too far in the future to count."""

    lines: int = 0
    sent: int = 0
    malformed: int = 0
    future: int = 0
    kept_aside: str | None = None


@app.command("access-log")
def access_log(file: LogFile, host: Host = "localhost", as_json: AsJson = False) -> None:
    """Send the lines of an Apache or Nginx log (combined format) to Kafka as page views."""
    settings = Settings()
    result = _import(settings, file, host)
    if as_json:
        print_json(asdict(result))
        return
    say(f"{result.lines:,} lines: {result.sent:,} page views sent, {result.malformed:,} malformed")
    if result.future:
        say(f"{result.future:,} lines are in the future and would not count: was the server's clock fast?")
    if result.kept_aside:
        say(f"lines that were not sent are in {result.kept_aside}")


def _import(settings: Settings, file: Path, host: str) -> Imported:
    from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
    from truelog.schema.event import FUTURE_LIMIT
    from truelog.sources.access_log.page_views import AccessLog, open_log, origin

    log, result = AccessLog(origin(host), _salt(settings)), Imported()
    with (
        progress(file.name, file.stat().st_size) as done,
        open_log(file) as (lines, raw),
        _aside(settings, file) as aside,
        KafkaSender(settings, ["page_view"]) as sender,
    ):
        for line in _lines(lines, file):
            result.lines += 1
            event = log.page_view(result.lines, line)
            if event is None or event.occurred_at > datetime.now(UTC) + FUTURE_LIMIT:
                result.malformed += event is None
                result.future += event is not None
                aside.write(line + b"\n")
            else:
                sender.send(
                    OutgoingRecord("page_view", event.visitor_id, event.model_dump_json(exclude_none=True).encode())
                )
            if result.lines % _STEP == 0:
                done(raw.tell())
        done(raw.tell())
    result.sent = sender.sent
    result.kept_aside = str(aside.name) if result.malformed + result.future else None
    return result


def _salt(settings: Settings) -> bytes:
    salt = settings.visitor_salt.get_secret_value()
    if not salt:
        raise NotSetUp(f"TRUELOG_VISITOR_SALT is missing from {settings.home / ENVIRONMENT_FILE}. Run `truelog up`.")
    return salt.encode()


def _lines(lines: BinaryIO, file: Path) -> Iterator[bytes]:
    try:
        for line in lines:
            yield line.rstrip(b"\r\n")
    except (EOFError, OSError, zlib.error) as error:
        raise BadInput(f"{file} could not be read completely: {error}") from error


@contextmanager
def _aside(settings: Settings, log: Path) -> Iterator[BinaryIO]:
    """A file that only its owner can read, because the lines contain IP addresses. An empty file is removed."""
    name = os.fsdecode(os.fsencode(log.name)[:_LONGEST_NAME])
    with _new_file(private_folder(kept_aside.folder(settings)), name) as file:
        kept_aside.take(file, wait=True)
        try:
            yield file
        finally:
            if not file.tell():
                Path(file.name).unlink()


def _new_file(folder: Path, name: str) -> BinaryIO:
    """A new file. Most servers call their log `access.log`, so other imports may have files with the same name."""
    number, path = 1, folder / f"{name}{kept_aside.SUFFIX}"
    while True:
        with suppress(FileExistsError):
            return open(path, "xb", opener=_private)
        number += 1
        path = folder / f"{name}.{number}{kept_aside.SUFFIX}"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
