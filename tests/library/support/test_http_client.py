"""The HTTP client has time limits, follows no redirects, uses no proxies, verifies certificates and logs no secrets."""

import logging
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.deadline import deadline
from truelog.support.errors import NoticeRefused, ReceiverDown
from truelog.support.http_client import authorities, post_json

ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok"

Reply = Callable[[socket.socket], None]


class Server:
    """A server that answers every connection with `reply` and records the requests."""

    def __init__(self, reply: Reply, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self._reply, self._tls = reply, tls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]

    @contextmanager
    def running(self) -> Iterator["Server"]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            thread.join(deadline(5))

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            try:
                with self._tls.wrap_socket(connection, server_side=True) if self._tls else connection as accepted:
                    self.requests.append(read_request(accepted))
                    self._reply(accepted)
            except OSError:  # the client has hung up
                continue


def read_request(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        head = b"".join(iter(stream.readline, b"\r\n"))
        length = next(int(line.split()[1]) for line in head.splitlines() if line.startswith(b"Content-Length"))
        return head + b"\r\n" + stream.read(length)


def replies(response: bytes) -> Reply:
    return lambda connection: connection.sendall(response)


def drip(connection: socket.socket) -> None:
    """Send a response byte by byte, ten times as slowly as the client may wait. No single read takes long."""
    for byte in b"HTTP/1.1 202 Accepted\r\nX-Drip: " + b"x" * 70 + b"\r\nContent-Length: 2\r\n\r\nok":
        if select.select([connection], [], [], 0.05)[0]:
            return  # the client has hung up
        connection.sendall(bytes([byte]))


def post(server: Server, path: str = "/", seconds: float = deadline(5), scheme: str = "http") -> None:
    post_json(f"{scheme}://127.0.0.1:{server.port}{path}", {"n": 1}, {"X-Key": "key"}, seconds)


def test_the_request_carries_the_path_the_headers_and_the_body() -> None:
    with Server(replies(ACCEPTED)).running() as server:
        post(server, "/v2/enqueue?x=1")
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v2/enqueue?x=1 HTTP/1.1\r\n")
    assert {b"Content-Type: application/json", b"X-Key: key"} <= set(head.split(b"\r\n"))
    assert body == b'{"n": 1}'


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (400, NoticeRefused, "^400: no$"),
        (413, NoticeRefused, "^413: no$"),
        (422, NoticeRefused, "^422: no$"),
        (302, ReceiverDown, "^it answered 302: no$"),
        (403, ReceiverDown, "^it answered 403: no$"),
        (503, ReceiverDown, "^it answered 503: no$"),
    ],
)
def test_the_status_decides_whether_a_retry_may_succeed(status: int, error: type[Exception], message: str) -> None:
    response = b"HTTP/1.1 %d x\r\nLocation: /elsewhere\r\nContent-Length: 2\r\n\r\nno" % status
    with Server(replies(response)).running() as server, pytest.raises(error, match=message):
        post(server)
    assert len(server.requests) == 1


def test_an_error_quotes_only_the_beginning_of_a_response() -> None:
    response = b"HTTP/1.1 500 x\r\nContent-Length: 100000\r\n\r\n" + b"a" * 100_000
    with Server(replies(response)).running() as server, pytest.raises(ReceiverDown) as raised:
        post(server)
    assert str(raised.value) == f"it answered 500: {'a' * 200}"


def test_the_time_limit_covers_the_whole_response() -> None:
    with Server(drip).running() as server, pytest.raises(ReceiverDown, match=r"did not answer within 0\.5 s"):
        post(server, seconds=0.5)


@pytest.mark.parametrize("response", [b"", b"SMTP ready\r\n\r\n"])
def test_a_response_that_is_not_http_means_that_the_receiver_is_down(response: bytes) -> None:
    with Server(replies(response)).running() as server, pytest.raises(ReceiverDown, match="did not answer in HTTP"):
        post(server)


def test_a_closed_port_means_that_the_receiver_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(ReceiverDown, match="did not answer: ConnectError: All connection") as raised:
        post_json(f"http://127.0.0.1:{port}/secret", {}, {}, 5)
    assert str(port) not in str(raised.value)
    assert raised.value.__suppress_context__


def test_proxies_in_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with Server(replies(ACCEPTED)).running() as server:
        post(server)
    assert len(server.requests) == 1


def test_no_log_shows_the_path(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), Server(replies(ACCEPTED)).running() as server:
        post(server, "/secret?token=secret")
    assert b"/secret" in server.requests[0]
    assert "secret" not in caplog.text


def test_a_certificate_must_be_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = write_certificate(tmp_path)
    server_tls.load_cert_chain(certificate)
    with Server(replies(ACCEPTED), server_tls).running() as server:
        with pytest.raises(ReceiverDown, match=r"did not answer: .* self-signed certificate"):
            post(server, scheme="https")
        assert server.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        post(server, scheme="https")
    assert len(server.requests) == 1


def test_the_authorities_are_loaded_again_only_if_their_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = write_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    first = authorities()
    assert authorities() is first
    os.utime(certificate, (0, 0))
    assert authorities() is not first
    monkeypatch.delenv("SSL_CERT_FILE")
    assert authorities() is not first


def write_certificate(folder: Path) -> Path:
    """Write a self-signed certificate for 127.0.0.1 and its key to one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    address = x509.IPAddress(ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)
    file = folder / "certificate.pem"
    file.write_bytes(pem)
    return file
