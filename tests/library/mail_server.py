"""Just enough of a mail server to receive mails, or to refuse them for some addresses."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class MailServer:
    """A server that answers with a code of `refused` for an address that has one. The answer quotes the address."""

    refused: dict[str, int]
    port: int = 0
    mails: list[str] = field(default_factory=list)
    addresses: list[list[str]] = field(default_factory=list)  # of each mail

    def answer(self, line: str, accepted: list[str]) -> str:
        """The answer to any line but DATA. An accepted address is added to `accepted`."""
        verb, _, address = line.rstrip(">").partition(" TO:<")
        if verb.upper() != "RCPT":
            return "221 bye" if line.upper() == "QUIT" else "250 fine"
        if code := self.refused.get(address):
            return f"{code} not {address}"
        accepted.append(address)
        return "250 fine"


@contextmanager
def mail_server(refused: dict[str, int] | None = None) -> Iterator[MailServer]:
    running = MailServer(refused or {})

    class Mail(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            accepted = list[str]()
            self._say("220 here")
            while line := self.rfile.readline().decode().strip():
                if line.upper() == "DATA":
                    self._say("354 go on")
                    running.mails.append(b"".join(iter(self.rfile.readline, b".\r\n")).decode())
                    running.addresses.append(accepted)
                self._say(running.answer(line, accepted))

        def _say(self, words: str) -> None:
            self.wfile.write(f"{words}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mail) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        running.port = server.server_address[1]
        yield running
        server.shutdown()
