"""Just enough of a mail server to receive mails."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def mail_server() -> Iterator[tuple[int, list[str]]]:
    """The port, and the mails so far."""
    mails = list[str]()

    class Mail(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 here")
            while line := self.rfile.readline().decode().strip().upper():
                if line == "DATA":
                    self._say("354 go on")
                    mails.append(b"".join(iter(self.rfile.readline, b".\r\n")).decode())
                self._say("221 bye" if line == "QUIT" else "250 fine")

        def _say(self, words: str) -> None:
            self.wfile.write(f"{words}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mail) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server.server_address[1], mails
        server.shutdown()
