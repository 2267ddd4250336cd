"""A service as the runtime knows it: how to configure it, start it and check that it is ready."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from truelog.support.settings import Settings


def _nothing(settings: Settings) -> None:
    """Most services need no preparation."""


def _home(settings: Settings) -> dict[str, str]:
    """The home, where a service finds its settings."""
    return {"TRUELOG_HOME": str(settings.home)}


@dataclass(frozen=True)
class Service:
    """One process under the supervisor. All its functions are idempotent."""

    name: str
    configure: Callable[[Settings], None]  # before the start: folders and files
    command: Callable[[Settings], list[str]]  # without secrets: other users can read it
    ready: Callable[[Settings], None]  # makes an authenticated call; raises ServiceDown with the reason
    address: Callable[[Settings], str]
    prepare: Callable[[Settings], None] = _nothing  # after it is ready: roles, buckets
    environment: Callable[[Settings], dict[str, str]] = _home  # without secrets: child processes inherit it
    stop_signal: str = "TERM"
    after: tuple[str, ...] = ()  # services that it needs
    user: str | None = None  # runs as this user when started by root


def log_file(settings: Settings, name: str) -> Path:
    return settings.home / "logs" / f"{name}.log"


def private_folder(folder: Path) -> Path:
    """Create a folder that only its owner can enter."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
