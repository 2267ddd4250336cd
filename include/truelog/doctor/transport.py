"""Whether connections are encrypted, whether clients verify the server, and when its certificate ends.

Only connections to this machine may be unencrypted. The doctor makes a TLS connection of its own, with the certificates
that the clients trust: most clients do not say why they refuse a server.
"""

import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from truelog.doctor.result import Area, Result

_SECONDS = 10.0
_SOON = timedelta(days=14)
_HOST_MISMATCH, _ADDRESS_MISMATCH, _EXPIRED = 62, 64, 10  # OpenSSL's X509_V_ERR_…

Greet = Callable[[socket.socket], None]


def is_this_machine(host: str) -> bool:
    """Whether a host name or an address is this machine's own."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("/")  # a socket in a folder


def plain(area: Area, host: str, cure: str) -> Result:
    """The result for a connection without TLS."""
    if is_this_machine(host):
        return area.fine("encryption", f"none, and none is needed: {host} is this machine")
    return area.failed("encryption", f"passwords and events go to {host} unencrypted", cure)


@dataclass(frozen=True)
class Server:
    """A server with TLS, as a client reaches it.

    trust: the file of the certificates that the client trusts; None if it trusts what it does by default.
    greet: what the client says before the TLS handshake.
    """

    host: str
    port: int
    trust: str | None
    ca_setting: str
    verifies: bool = True
    checks_name: bool = True
    greet: Greet = lambda _: None

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"


def tls(area: Area, server: Server) -> Iterator[Result]:
    """Whether a client can make a TLS connection, and then the result for the server's certificate."""
    try:
        protocol, until = _handshake(server)
    except ssl.SSLCertVerificationError as error:
        # By default, a client may trust others than Python does. Then its own connection decides.
        is_known = server.trust is not None or error.verify_code in (_HOST_MISMATCH, _ADDRESS_MISMATCH, _EXPIRED)
        result = area.failed if is_known else area.warning
        yield result("encryption", f"{server.name} is refused: {error.verify_message}", _cure(server, error))
    except (ssl.SSLError, OSError) as error:
        found = f"no TLS connection to {server.name}: {getattr(error, 'reason', None) or error}"
        yield area.failed("encryption", found, "Check the address: is it the port at which the server expects TLS?")
    else:
        yield _encrypted(area, server, protocol)
        if until is not None:
            yield _certificate(area, server, until)


def _encrypted(area: Area, server: Server, protocol: str) -> Result:
    if not server.verifies:
        cure = f"Verify it: TRUELOG_DATABASE_SSLMODE=verify-full, and {server.ca_setting} if its CA is a private one."
        return area.warning("encryption", f"{protocol} to {server.name}, which any server could claim to be", cure)
    if not server.checks_name:
        cure = "Set TRUELOG_DATABASE_SSLMODE=verify-full, which also compares the name."
        return area.warning("encryption", f"{protocol} to {server.name}, verified except for its name", cure)
    return area.fine("encryption", f"{protocol} to {server.name}, verified with {_trusted(server)}")


def _certificate(area: Area, server: Server, until: datetime) -> Result:
    left = until - datetime.now(UTC)
    found = f"that of {server.name} ends on {until:%Y-%m-%d}, in {left.days} days"
    if left > _SOON:
        return area.fine("certificate", found)
    return area.warning("certificate", found, "Renew it. Afterwards, all clients refuse the server.")


def _handshake(server: Server) -> tuple[str, datetime | None]:
    """The version of TLS, and the end of the certificate if it is verified."""
    if not server.verifies:
        context = ssl._create_unverified_context()  # noqa: S323  as the client does: the result says so
    else:
        context = ssl.create_default_context(cafile=server.trust)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the clients are not stricter than the standard was
        context.check_hostname = server.checks_name
    with socket.create_connection((server.host, server.port), _SECONDS) as plain_socket:
        server.greet(plain_socket)
        with context.wrap_socket(plain_socket, server_hostname=server.host) as encrypted:
            certificate, protocol = encrypted.getpeercert() or {}, encrypted.version() or "TLS"
    ends = certificate.get("notAfter")
    return protocol, datetime.fromtimestamp(ssl.cert_time_to_seconds(str(ends)), UTC) if ends else None


def _cure(server: Server, error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in (_HOST_MISMATCH, _ADDRESS_MISMATCH):
        return f"Use a name that the certificate contains, or give the server a certificate for {server.host}."
    if error.verify_code == _EXPIRED:
        return "Renew the server's certificate."
    cure = f"Name the CA that signed the server's certificate in {server.ca_setting}."
    return f"{cure} Clients trust {_trusted(server)} now."


def _trusted(server: Server) -> str:
    return server.trust or "the certificates that they know by default"
