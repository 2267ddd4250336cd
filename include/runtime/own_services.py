"""The supervisor's entries of Truelog's own services, made from their declarations."""

import hashlib
import sys
from collections.abc import Collection
from functools import partial

from runtime.service import Service, home_variable
from truelog.services import registry
from truelog.services.declaration import Check
from truelog.services.declaration import Service as Declaration
from truelog.services.health_check import require_healthy
from truelog.support.errors import NotSetUp
from truelog.support.settings import ENVIRONMENT_FILE, Settings


def entry(declared: Declaration) -> Service:
    """The entry of a declared service."""
    check = declared.check or _health_check(declared.name)
    return Service(
        name=declared.name,
        configure=partial(_require_port, declared),
        command=lambda _: [sys.executable, "-m", declared.module],
        ready=check.ready,
        address=check.address,
        ports=lambda settings: (settings.address(declared.name).port,) if declared.http else (),
        after=declared.after,
        environment=_environment,
        is_wanted=partial(_is_wanted, declared),
    )


def require_wanted(settings: Settings, names: Collection[str]) -> None:
    """Require that this environment may have these services, which a person has named.

    Raises:
        ReadsOnly: one of them writes events, and the events are another environment's.
    """
    for each in registry.SERVICES:
        if each.writes_events and each.name in names:
            settings.require_own_events(f"the service {each.name}")


def _environment(settings: Settings) -> dict[str, str]:
    """The home, and a digest of its settings file.

    A service reads the file when it starts. By the digest, the supervisor notices that it must start the service again.
    """
    file = settings.home / ENVIRONMENT_FILE
    digest = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
    return home_variable(settings) | {"SETTINGS_DIGEST": digest}


def _is_wanted(declared: Declaration, settings: Settings) -> bool:
    return not (declared.writes_events and settings.reads_events)


def _require_port(declared: Declaration, settings: Settings) -> None:
    """Raise NotSetUp if the service answers HTTP requests, and set-up has not chosen its port."""
    name = declared.name
    if declared.http and not settings.address(name).port:
        raise NotSetUp(f"no {name} port in the settings of {settings.home}: run `truelog up`, which chooses a port")


def _health_check(name: str) -> Check:
    def address(settings: Settings) -> str:
        at = settings.address(name)
        return f"{at.host}:{at.port}"

    return Check(partial(require_healthy, name), address)


OWN = tuple(map(entry, registry.SERVICES))
