"""Text for a terminal, and the logging of commands to standard error.

A terminal shows what a command waits for in one line, which changes.
"""

import logging
import re
import shutil
import sys
from typing import TextIO

_CLEAR = "\r\x1b[K"
# Controls, except tab and line feed; separators of lines; characters that turn the direction of text; half characters.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """The text as it is, with escapes for what would control a terminal. In JSON, the escapes mean the same text."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def log_to_terminal() -> None:
    """Log Truelog's messages and the warnings of libraries to standard error."""
    handler = _LiveHandler(sys.stderr) if sys.stderr.isatty() else logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Visible("%(asctime)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("truelog").setLevel(logging.INFO)
    if sys.stderr.isatty():
        logging.getLogger("truelog.wait").setLevel(logging.DEBUG)


class _Visible(logging.Formatter):
    """Messages may quote what producers and authors wrote."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


class _LiveHandler(logging.StreamHandler[TextIO]):
    """Writes a live message over the one before. Any other message clears it."""

    def emit(self, record: logging.LogRecord) -> None:
        is_live = getattr(record, "live", False)
        text = visible(record.getMessage()).replace("\n", " ")[: shutil.get_terminal_size().columns - 1]
        self.stream.write(_CLEAR + (text if is_live else ""))
        self.flush()
        if not is_live:
            super().emit(record)
