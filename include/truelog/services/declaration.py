"""What the platform must know of a service. Each folder of this package declares one service in `declaration.py`.

From a declaration come the supervisor's entry (`runtime.own_services`), the port that set-up chooses
(`runtime.credentials`), the routes that the service serves (`web`), and parts of the compose file and of other files
(`runtime.made_files`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from truelog.storage.api_key import Role
from truelog.support.settings import KafkaUser, Settings


@dataclass(frozen=True)
class Route:
    """A request that the service answers. Without a role, no API key is needed."""

    method: str
    path: str
    role: Role | None = None


HEALTH = Route("GET", "/health")  # 200 while the service and the services that it needs are healthy
METRICS = Route("GET", "/metrics", Role.READER)  # for Prometheus


@dataclass(frozen=True)
class Http:
    """The HTTP requests that a service answers. One of the routes must be `HEALTH`."""

    label: str  # of its port, for people
    port: int  # set-up chooses another port if this one is in use
    routes: tuple[Route, ...]


@dataclass(frozen=True)
class Check:
    """How the platform sees that a service is ready, and where people find it."""

    ready: Callable[[Settings], None]  # raises ServiceDown with the reason
    address: Callable[[Settings], str]


class Bucket(Enum):
    """What a service does with the bucket, and so which keys of the object store it gets."""

    UNUSED = "unused"
    READ = "read"  # with keys that may only read, if there are any
    CHANGED = "changed"


@dataclass(frozen=True)
class Access:
    """What a service may do in the stores besides the duty of its principal. By default, it may do anything."""

    # As which it signs in to the database (`Settings.process_passwords`); the owner of the database if it is None.
    role: str | None = None
    bucket: Bucket = Bucket.CHANGED
    reads_topics: bool = True  # also as Kafka's reader
    administers_kafka: bool = True  # creates topics, for example


@dataclass(frozen=True)
class Service:
    """A service of Truelog's own. The settings `<name>_host` and `<name>_port` contain its address."""

    name: str  # of its process and its container
    module: str  # `python -m` runs it
    after: tuple[str, ...]  # the services that must be ready before it starts
    kafka: KafkaUser | None  # the principal as which it uses Kafka
    http: Http | None = None
    check: Check | None = None  # of a service without HTTP
    folders: tuple[str, ...] = ()  # of the checkout, which it reads besides `include`
    secrets: tuple[str, ...] = ()  # the secret settings that it needs besides those of the stores and its principal's
    several: bool = False  # several processes may run at once
    writes_events: bool = False  # so an environment that reads the events of another one has no such service
    access: Access = Access()

    def settings(self) -> Settings:
        """The settings with which a process of this service connects."""
        loaded, access = Settings(), self.access
        own = loaded.signed_in_as(access.role) if access.role else loaded
        return own.only_reading() if access.bucket is Bucket.READ else own
