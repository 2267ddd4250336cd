"""The description of a service: how to configure it, start it, and check that it is ready."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from truelog.support.settings import Settings


def _nothing(settings: Settings) -> None:
    """Do nothing, because most services need no preparation."""


def _always(settings: Settings) -> bool:
    """Whether the platform has the service, because most services are not optional."""
    return True


def _no_ports(settings: Settings) -> tuple[int, ...]:
    """The ports of a service that listens at none."""
    return ()


def is_embedded(settings: Settings) -> bool:
    """Whether the stores are services of this platform."""
    return settings.stores == "embedded"


def home_variable(settings: Settings) -> dict[str, str]:
    """The variable for the home, where a service finds its settings."""
    return {"TRUELOG_HOME": str(settings.home)}


@dataclass(frozen=True)
class Service:
    """A process that the supervisor runs. All functions of a service are idempotent."""

    name: str
    command: Callable[[Settings], list[str]]  # without secrets: other users can read it
    ready: Callable[[Settings], None]  # makes an authenticated call; raises ServiceDown with the reason
    address: Callable[[Settings], str]
    ports: Callable[[Settings], tuple[int, ...]] = _no_ports  # at which it listens
    configure: Callable[[Settings], None] = _nothing  # before the start: creates folders and files
    prepare: Callable[[Settings], None] = _nothing  # after the service is ready: creates roles, buckets and so on
    environment: Callable[[Settings], dict[str, str]] = home_variable  # without secrets: child processes inherit it
    stop_signal: str = "TERM"
    after: tuple[str, ...] = ()  # services that this service needs
    is_wanted: Callable[[Settings], bool] = _always
    user: str | None = None  # if root starts the service, it runs as this user


def log_file(settings: Settings, name: str) -> Path:
    return settings.home / "logs" / f"{name}.log"


def private_folder(folder: Path) -> Path:
    """Create a folder that only its owner can enter."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
