"""What a command that failed tells its user: one message and an exit code, never a traceback."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from truelog.cli.output import Exit, say
from truelog.client.errors import ClientError
from truelog.support.errors import BadInput, TruelogError
from truelog.support.settings import default_home

# The service behind an exception, by the package that defines the exception.
_SERVICES = {
    "psycopg": "PostgreSQL",
    "sqlalchemy": "PostgreSQL",
    "adbc_driver_manager": "PostgreSQL",
    "confluent_kafka": "Kafka",
    "cimpl": "Kafka",
    "botocore": "The object store",
    "pyarrow": "The object store",
    "pyiceberg": "The archive",
    "py4j": "Spark",
    "pyspark": "Spark",
}


@contextmanager
def explained() -> Iterator[None]:
    """If the block fails, end the process with a message and an exit code."""
    try:
        yield
    except Exception as error:  # Python would exit with code 1, which means here that the answer is known
        code, message = explain(error)
        say(message, err=True)
        sys.exit(code)


def explain(error: Exception) -> tuple[Exit, str]:
    """The exit code and the message for an exception. The log in the home gets the traceback of unexpected errors."""
    if isinstance(error, TruelogError | ClientError):
        return (Exit.BAD_USE if isinstance(error, BadInput) else Exit.UNKNOWN), f"{type(error).__name__}: {error}"
    if isinstance(error, UnicodeError):
        return Exit.BAD_USE, "An argument is not valid UTF-8."
    service = _SERVICES.get(type(error).__module__.partition(".")[0])
    said = _first_line(error)
    if service:
        return Exit.UNKNOWN, f"{service} failed: {said}; see `truelog status`.{_kept(error)}"
    if isinstance(error, OSError):
        return Exit.UNKNOWN, f"{said}; see `truelog status`.{_kept(error)}"
    return Exit.UNKNOWN, f"An unexpected error occurred: {type(error).__name__}: {said}.{_kept(error)}"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return next(filter(None, lines), type(error).__name__).rstrip(".")


def _kept(error: Exception) -> str:
    """Append the traceback to a private log and say where. A home that cannot be written has no log."""
    file = Path(default_home() / "logs" / "errors.log")
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError:
        return ""
    with os.fdopen(descriptor, "w", errors="backslashreplace") as log:
        log.write("".join(traceback.format_exception(error)))
    return f" Details: {file}"
