"""A certificate authority of a test, and the certificates that it signs."""

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID

HERE = ("127.0.0.1",)
PASSWORD = "of-the-key-store"


@dataclass(frozen=True)
class Identity:
    """The files of a server: its key with its certificate as PEM, and both as PKCS12 for Java."""

    pem: Path
    pkcs12: Path

    def context(self) -> ssl.SSLContext:
        """What a server of Python needs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.pem)
        return context


class Authority:
    """A CA. `file` is its certificate, which clients must trust."""

    def __init__(self, folder: Path, name: str = "truelog-test-ca") -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._signed(name, self._key, [], timedelta(days=365), is_authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._certificate.public_bytes(Encoding.PEM))

    def identity(self, names: Sequence[str] = HERE, lasts: timedelta = timedelta(days=90)) -> Identity:
        """A key, and a certificate for these names, which ends after this time."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(names[0], key, names, lasts)
        made = f"{'-'.join(names)}-{lasts.days}"
        found = Identity(self._folder / f"{made}.pem", self._folder / f"{made}.p12")
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        found.pem.write_bytes(private + certificate.public_bytes(Encoding.PEM))
        sealed = BestAvailableEncryption(PASSWORD.encode())
        found.pkcs12.write_bytes(serialize_key_and_certificates(b"server", key, certificate, None, sealed))
        return found

    def _signed(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        names: Sequence[str],
        lasts: timedelta,
        *,
        is_authority: bool = False,
    ) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if is_authority else self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + lasts)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([*map(_general_name, names)]), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
