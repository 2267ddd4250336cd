"""What a service is to the runtime: how it is configured, started, and known to be ready."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from truelog.support.settings import Settings


def _nothing(settings: Settings) -> None:
    """Most services need nothing more once they answer."""


def _home(settings: Settings) -> dict[str, str]:
    """By its home a service finds the settings."""
    return {"TRUELOG_HOME": str(settings.home)}


@dataclass(frozen=True)
class Service:
    """One process that the supervisor keeps; each of its functions may be called any number of times."""

    name: str
    configure: Callable[[Settings], None]  # before it starts: folders and files
    command: Callable[[Settings], list[str]]  # no secret in it: other users can read it
    ready: Callable[[Settings], None]  # a real, authenticated call; raises ServiceDown with the reason
    address: Callable[[Settings], str]
    prepare: Callable[[Settings], None] = _nothing  # once it answers: roles, buckets
    environment: Callable[[Settings], dict[str, str]] = _home  # no secret in it: what it starts inherits it
    stop_signal: str = "TERM"
    after: tuple[str, ...] = ()  # services that it needs
    user: str | None = None  # the user that root steps down to


def log_file(settings: Settings, name: str) -> Path:
    return settings.home / "logs" / f"{name}.log"


def private_folder(folder: Path) -> Path:
    """A folder that only its owner can enter."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
