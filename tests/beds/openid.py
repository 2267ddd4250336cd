"""An OpenID provider over HTTPS on this machine: its clients get tokens (RS256), and servers get its keys."""

import base64
import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

AUDIENCE, CLIENT, SCOPE = "kafka", "truelog-platform", "log"
_KEY = "the-only-key"


class Provider(ThreadingHTTPServer):
    """`secrets` are those of the clients, which a test may change. `issued` has the client of each token."""

    daemon_threads = True

    def __init__(self, context: SSLContext, seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.address = f"https://127.0.0.1:{self.server_address[1]}"
        self.secrets = {CLIENT: uuid.uuid4().hex}
        self.issued: list[str] = []
        self.seconds = seconds
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def token_url(self) -> str:
        return f"{self.address}/token"

    @property
    def keys_url(self) -> str:
        return f"{self.address}/keys"

    def keys(self) -> dict[str, object]:
        public = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return {"keys": [{**public, "kid": _KEY, "use": "sig", "alg": "RS256"}]}

    def token(self, client: str, scope: str) -> dict[str, object]:
        self.issued.append(client)
        now = time.time()
        about = {"iss": self.address, "aud": AUDIENCE, "sub": client, "scope": scope}
        claims = {**about, "iat": int(now), "exp": int(now + self.seconds)}
        signed = jwt.encode(claims, self._key, "RS256", {"kid": _KEY})
        return {"access_token": signed, "token_type": "Bearer", "expires_in": int(self.seconds)}


class _Request(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        self._answer(200, self.server.keys()) if self.path == "/keys" else self._answer(404, {})

    def do_POST(self) -> None:
        asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        client, _, secret = base64.b64decode(given).decode().partition(":") if kind == "Basic" else ("", "", "")
        if asked.get("grant_type") != ["client_credentials"] or asked.get("scope") != [SCOPE]:
            self._answer(400, {"error": "invalid_request"})
        elif self.server.secrets.get(client) != secret:
            self._answer(401, {"error": "invalid_client"})
        else:
            self._answer(200, self.server.token(client, SCOPE))

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def provider(context: SSLContext, seconds: float) -> Iterator[Provider]:
    """A provider whose tokens last for these seconds."""
    with Provider(context, seconds) as made:
        serving = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        serving.start()
        try:
            yield made
        finally:
            made.shutdown()
            serving.join()
