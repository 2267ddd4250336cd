"""The lines that `truelog import access-log` has kept aside on this machine: lines that name a person go.

Nothing else would delete them. The files of other machines are not reached, nor is a visitor id, which is a hash of a
line's address and program.
"""

import re
from pathlib import Path

from truelog.erasure.erasure import Erasures
from truelog.sources.access_log import kept_aside
from truelog.support.errors import NotForgotten
from truelog.support.files import write_private
from truelog.support.settings import Settings

_UNFINISHED = re.compile(rf"\..+{re.escape(kept_aside.SUFFIX)}\.\d+")  # what a killed erasure leaves


def forget_lines(settings: Settings, erasures: Erasures) -> None:
    """Remove the lines that name a subject, and the files without a line. To do it again changes nothing.

    Raises:
        NotForgotten: an import is writing a file, or a file cannot be changed.
    """
    for file in sorted(kept_aside.folder(settings).glob("*")):
        try:
            if _UNFINISHED.fullmatch(file.name):
                file.unlink()
            elif file.name.endswith(kept_aside.SUFFIX):
                _forget(file, erasures)
        except FileNotFoundError:
            continue  # an import has kept nothing, or a user has deleted the file
        except BlockingIOError as busy:
            raise NotForgotten(f"an import is writing {file}. Repeat the command when it has ended.") from busy
        except OSError as failed:
            raise NotForgotten(
                f"{file} may have lines of the person, and cannot be changed: {failed}. "
                "Delete it, then repeat the command."
            ) from failed


def _forget(file: Path, erasures: Erasures) -> None:
    with file.open("rb") as lines:
        kept_aside.take(lines, wait=False)
        if not any(_names(erasures, each) for each in lines):
            return
        lines.seek(0)
        write_private(file, (each for each in lines if not _names(erasures, each)))
    if not file.stat().st_size:
        file.unlink()


def _names(erasures: Erasures, line: bytes) -> bool:
    return erasures.names_subject(line.decode(errors="replace"))
