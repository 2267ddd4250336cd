"""The certificates that Java trusts when Iceberg reads the object store with TLS. Java does not read PEM files.

Kafka's and PostgreSQL's Java clients do not use this file: their own options name the PEM files.
"""

import hashlib
import os
from pathlib import Path

from truelog.support.settings import Settings


def java_options(settings: Settings) -> list[str]:
    """The options for a JVM of this machine. Without TLS, there are none."""
    if settings.s3_trust is None:
        return []
    file = _written(settings.home, Path(settings.s3_trust).read_bytes())
    return [f"-Djavax.net.ssl.trustStore={file}", "-Djavax.net.ssl.trustStoreType=PKCS12"]


def _written(home: Path, pem: bytes) -> Path:
    """The file with these certificates, made if it is missing. Other certificates have another file."""
    file = home / f"trust-{hashlib.sha256(pem).hexdigest()[:12]}.p12"
    if not file.exists():
        fresh = file.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(_as_pkcs12(pem))
        fresh.replace(file)
    return file


def _as_pkcs12(pem: bytes) -> bytes:
    # Imported here, because most platforms need no such file.
    from cryptography.hazmat.primitives.serialization import NoEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
    from cryptography.x509 import load_pem_x509_certificates

    found = load_pem_x509_certificates(pem)
    named = [PKCS12Certificate(each, str(number).encode()) for number, each in enumerate(found)]
    return serialize_java_truststore(named, NoEncryption())
