"""Logging of commands to standard error. A terminal shows what a command waits for in one line, which changes."""

import logging
import shutil
import sys
from typing import TextIO

_CLEAR = "\r\x1b[K"


def log_to_terminal() -> None:
    """Log Truelog's messages and the warnings of libraries to standard error."""
    handler = _LiveHandler(sys.stderr) if sys.stderr.isatty() else logging.StreamHandler(sys.stderr)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("truelog").setLevel(logging.INFO)
    if sys.stderr.isatty():
        logging.getLogger("truelog.wait").setLevel(logging.DEBUG)


class _LiveHandler(logging.StreamHandler[TextIO]):
    """Writes a live message over the one before. Any other message clears it."""

    def emit(self, record: logging.LogRecord) -> None:
        is_live = getattr(record, "live", False)
        text = record.getMessage().replace("\n", " ")[: shutil.get_terminal_size().columns - 1]
        self.stream.write(_CLEAR + (text if is_live else ""))
        self.flush()
        if not is_live:
            super().emit(record)
