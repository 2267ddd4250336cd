"""Passwords and ports, generated once for a home.

They are written to `settings.env`, which is created with mode 0600. A later release adds the entries that it needs but
never changes existing entries.
"""

import base64
import secrets
from collections.abc import Iterable
from pathlib import Path

from runtime import ports
from runtime.home import add_missing, written_names
from truelog.services import registry
from truelog.storage import api_key
from truelog.support.errors import NotSetUp
from truelog.support.settings import ENVIRONMENT_FILE, KafkaUser, Settings

PORTS = {"postgresql": 15432, "kafka": 19092, "controller": 19093, "s3": 18333, "airflow": 18081, "connect": 18084}
PORTS |= {name: http.port for name, http in registry.HTTP.items()}
_PARTS = ("HOST", "PORT")


def set_up(home: Path, *, random_ports: bool = False) -> Settings:
    """Add missing settings to the home, and load all settings."""
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o711)  # a service that runs as another user may enter the home but not list it
    known = written_names(home)
    add_missing(home, {f"TRUELOG_{name.upper()}": value for name, value in _generated(random_ports).items()})
    settings = Settings(home=home)
    _require_known(known, settings.services, home / ENVIRONMENT_FILE)
    return settings


def _require_known(written: set[str], services: Iterable[str], file: Path) -> None:
    """Refuse addresses of services that do not exist, because any name may be that of a service."""
    strangers = {f"TRUELOG_{name.upper()}_{part}" for name in services if name not in registry.HTTP for part in _PARTS}
    if wrong := strangers & written:
        raise NotSetUp(f"settings in {file}: {', '.join(sorted(wrong))}: there is no such service")


def _generated(random_ports: bool) -> dict[str, str]:
    chosen = ports.free({name: ports.of_this_process() if random_ports else (port, 0) for name, port in PORTS.items()})
    return {
        "kafka_bootstrap": f"{ports.LOOPBACK}:{chosen['kafka']}",
        "kafka_controller_port": str(chosen["controller"]),
        "s3_endpoint": f"http://{ports.LOOPBACK}:{chosen['s3']}",
        "database_port": str(chosen["postgresql"]),
        "airflow_port": str(chosen["airflow"]),
        **{f"{service}_port": str(chosen[service]) for service in registry.HTTP},
        "connect_port": str(chosen["connect"]),
        **generated_secrets(),
    }


def generated_secrets() -> dict[str, str]:
    """New passwords and keys."""
    return {
        "kafka_password": _secret(),
        **{user.password_setting: _secret() for user in KafkaUser if user is not KafkaUser.ADMIN},
        "kafka_controller_password": _secret(),
        "s3_access_key": _secret()[:20],
        "s3_secret_key": _secret(),
        "database_password": _secret(),
        "stager_password": _secret(),
        "catalog_password": _secret(),
        "postgres_password": _secret(),
        "analyst_password": _secret(),
        "api_password": _secret(),
        "api_service_password": _secret(),
        "collector_password": _secret(),
        "api_token_secret": _secret(),
        "erasure_secret": _secret(),
        "airflow_password": _secret(),
        **{f"airflow_{user}_password": _secret() for user in ("admin", "oncall", "analyst")},
        "airflow_secret_key": _secret(),
        "airflow_jwt_secret": secrets.token_hex(64),  # HS512 needs a 64-byte key
        "airflow_fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        **{f"{role}_key": api_key.generate_key(role) for role in api_key.FIRST},
        "connect_password": _secret(),
        "source_password": _secret(),
        "visitor_salt": _secret(),
    }


def _secret() -> str:
    """A hexadecimal secret, which needs no quotes in any configuration format."""
    return secrets.token_hex(24)
