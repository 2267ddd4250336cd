"""All services of Truelog's own. A new service is one folder of this package, and one line here."""

from importlib import import_module

from truelog.services.declaration import Service

FOLDERS = (  # each after the services that it needs
    "ticks",
    "commands",
    "collector",
    "monitor",
    "relay",
    "notifier",
    "api",
)
SERVICES: tuple[Service, ...] = tuple(
    import_module(f"truelog.services.{folder}.declaration").SERVICE for folder in FOLDERS
)
HTTP = {service.name: service.http for service in SERVICES if service.http}
