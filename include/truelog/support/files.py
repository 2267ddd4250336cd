"""Files and folders that only their owner can read."""

import os
from collections.abc import Iterable
from pathlib import Path


def private_folder(folder: Path) -> Path:
    """Make a folder that only its owner can list, whatever the umask, and even if another program made it."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def write_private(file: Path, content: str | Iterable[bytes]) -> None:
    """Replace a file that contains secrets. Other users cannot read the file at any moment."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.writelines([content.encode()] if isinstance(content, str) else content)
    fresh.replace(file)
