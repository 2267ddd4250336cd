"""The certificates with which clients verify the servers of Kafka, PostgreSQL and the object store."""

import os
import ssl
from pathlib import Path

from truelog.support.errors import NotSetUp

# Where systems keep the certificates that they trust, if Python's own setting names no file.
_SYSTEM = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_BEGIN = "-----BEGIN CERTIFICATE-----"


def trusted(file: Path | None, setting: str) -> str:
    """The path of the PEM file that a setting names, or of the system's own certificates if it names none.

    Clients of PostgreSQL need a file: without one, they verify no server.

    Raises:
        NotSetUp: there is no such file, or it contains no certificate in PEM format.
    """
    return named(file, setting) or _of_system(setting)


def named(file: Path | None, setting: str) -> str | None:
    """The path of the PEM file that a setting names. If it names none, each client trusts what it trusts by default.

    Raises:
        NotSetUp: there is no such file, or it contains no certificate in PEM format.
    """
    if file is None:
        return None
    try:
        text = file.read_text("latin-1")
    except OSError as error:
        raise NotSetUp(f"{setting}: {file} cannot be read: {error.strerror}") from None
    if _BEGIN not in text:
        raise NotSetUp(f"{setting}: {file} contains no certificate in PEM format")
    return str(file.absolute())


def _of_system(setting: str) -> str:
    default = ssl.get_default_verify_paths().cafile
    found = next((each for each in (default, *_SYSTEM) if each and os.path.isfile(each)), None)
    if found is None:
        raise NotSetUp(f"this machine has no file of trusted certificates: name one in {setting}")
    return found
