"""What a running platform exposes to other users of the machine, and which answers of its ports give something away."""

import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
from pydantic import SecretStr

from truelog.services import registry
from truelog.support.settings import Settings

# The names of the files and folders that Spark, its Python workers and Java leave in the temporary folder.
_LEFT = ("artifacts-", "blockmgr-", "hsperfdata_", "liblz4", "pyspark-", "snappy-", "spark-")
_PROGRAMS = "binaries-"  # PostgreSQL's programs, which contain no data and which its own user must be able to execute
_KINDS = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFSOCK)

_SERVED = re.compile(r"HTTP/1\.[01] [123]")
# Signs that a request was not refused: a block, Java's deserialization, a Py4J result, a session, and names of topics.
_GIVEN = ("StreamCorruptedException", "!y", "R\x00\x00\x00\x08\x00\x00\x00\x00", "page_view", "dead_letter")


def listening_ports(processes: Iterable[psutil.Process]) -> dict[int, str]:
    """The ports on which these processes listen, with the names of the processes."""
    ports = {}
    for process in processes:
        for _, port in listening_addresses(process):
            with suppress(psutil.NoSuchProcess):
                ports[port] = process.name()
    return ports


def listening_addresses(process: psutil.Process) -> set[tuple[str, int]]:
    """The addresses and ports on which a process listens; none if it has ended since it was listed."""
    with suppress(psutil.NoSuchProcess):
        connections = process.net_connections(kind="inet")
        listening = [each.laddr for each in connections if each.status == psutil.CONN_LISTEN]
        return {(address.ip.removeprefix("::ffff:"), address.port) for address in listening}
    return set()


def private_files(folders: Iterable[Path]) -> Iterator[Path]:
    """The files, folders and sockets of these folders, and the files that processes left in the temporary folder."""
    for folder in folders:
        yield folder
        yield from (each for each in below(folder) if _PROGRAMS not in str(each) and _kind(each) in _KINDS)
    since = psutil.Process().create_time()
    for left in Path(tempfile.gettempdir()).iterdir():
        with suppress(FileNotFoundError):
            if left.name.startswith(_LEFT) and left.lstat().st_uid == os.getuid() and left.lstat().st_mtime > since:
                yield from (each for each in (left, *below(left)) if _kind(each) == stat.S_IFREG)


def below(folder: Path) -> Iterator[Path]:
    """Everything below a folder. Unlike `rglob`, this passes over a folder that is removed meanwhile."""
    for where, folders, files in os.walk(folder):
        yield from (Path(where, name) for name in (*folders, *files))


def _kind(path: Path) -> int:
    with suppress(FileNotFoundError):  # it was removed since it was listed
        return stat.S_IFMT(path.lstat().st_mode)
    return 0


def leaks(settings: Settings, answers: Iterable[tuple[int, str, str | None]]) -> list[tuple[int, str, str]]:
    """The answers that are more than a refusal: port, request and the beginning of the answer."""
    given = [(port, request, answer) for port, request, answer in answers if answer]
    secrets = [value.get_secret_value() for _, value in settings if isinstance(value, SecretStr) and value]
    public = _public(settings, given)
    return [
        (port, request, answer[:300])
        for port, request, answer in given
        if any(secret in answer for secret in secrets)
        or any(sign in answer for sign in _GIVEN)
        or ("broadcast" in answer and "Expected Sasl" not in answer)
        or (_SERVED.match(answer) and (port, request) not in public)
    ]


def _public(settings: Settings, given: list[tuple[int, str, str]]) -> set[tuple[int, str]]:
    """Requests that need no credentials: health without data, Airflow's page that asks for a password, and its manual.

    Airflow's server returns this page for each address that it does not know.
    """
    airflow = {request: _body(answer) for port, request, answer in given if port == settings.airflow_port}
    pages = {(settings.airflow_port, request) for request, body in airflow.items() if body == airflow["GET /"]}
    health = {
        (settings.address(name).port, f"{route.method} {route.path}")
        for name, http in registry.HTTP.items()
        for route in http.routes
        if route.role is None
    }
    return pages | health | {(settings.airflow_port, "GET /docs")}


def _body(answer: str) -> str:
    return answer.partition("\r\n\r\n")[2]
