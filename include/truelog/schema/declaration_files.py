"""Declaration files: which files of a folder declare a view or an event type. Everybody asks here.

People and their programs leave other files in these folders: an editor's locks and copies, sidecars of macOS, notes. A
hidden file declares nothing, and neither does a file whose name begins with "_". A file whose name no table can have is
not read, and `misnamed` says so. Any other file is a declaration. If it cannot be read, it is refused with the reason.
"""

import hashlib
import os
import re
from pathlib import Path

from truelog.support.errors import BadDeclaration

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,199}")  # topics, tables and SQL can have such a name


def declared_names(folder: Path) -> list[str]:
    """The names of all declarations, taken from the file names without loading the files."""
    return [stem for stem in _stems(folder) if _NAME.fullmatch(stem)]


def misnamed(folder: Path) -> dict[str, str]:
    """The files that are not read because of their names, each with the reason."""
    stems = [os.fsencode(stem).decode(errors="replace") for stem in _stems(folder) if not _NAME.fullmatch(stem)]
    return {stem: f"{stem}.py is not read: use a-z, 0-9 and _ in its file name." for stem in stems}


def content(path: Path) -> bytes:
    """The content of a declaration file.

    Raises:
        BadDeclaration: the file cannot be read.
    """
    try:
        if path.is_file():  # a pipe would never end
            return path.read_bytes()
    except OSError as error:
        raise BadDeclaration(f"{path.name} cannot be read: {error.strerror}") from error
    raise BadDeclaration(f"{path.name} cannot be read: it is not a file, or a link to a file that does not exist.")


def digest(path: Path) -> str:
    """The hash of a file's content, or of the reason if the file cannot be read. A mended file has another digest."""
    try:
        return hashlib.sha256(content(path)).hexdigest()
    except BadDeclaration as unreadable:
        return hashlib.sha256(str(unreadable).encode()).hexdigest()


def _stems(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.py") if not path.name.startswith((".", "_")))
