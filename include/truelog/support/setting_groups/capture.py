"""The settings of change data capture (docs/change-data-capture.md)."""

from pathlib import Path
from typing import Literal

from pydantic import PositiveInt, SecretStr
from pydantic_settings import BaseSettings


class CaptureSettings(BaseSettings):
    """Where the captured database and Kafka Connect are. `truelog.support.settings` says where values come from."""

    # The embedded source is a second database of the embedded server.
    capture: bool = False
    source_host: str = ""  # of the embedded database by default, as are the port and the password of the role
    source_port: int = 0
    source_database: str = "source"
    source_user: str = "capture"
    source_password: SecretStr = SecretStr("")
    source_sslmode: Literal["", "prefer", "require", "verify-ca", "verify-full"] = ""  # the database's by default
    source_ca_file: Path | None = None  # the database's by default
    capture_retained_bytes: PositiveInt = 2**30  # of the captured database's log, which raises a warning
    connect_port: int = 0  # at which Kafka Connect answers on this machine
    connect_password: SecretStr = SecretStr("")
