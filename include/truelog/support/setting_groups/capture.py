"""The settings of change data capture (docs/change-data-capture.md)."""

from pathlib import Path
from typing import Literal

from pydantic import PositiveInt, SecretStr, ValidationInfo, field_validator

from truelog.support.setting_groups.namespace import NamespaceSettings


class CaptureSettings(NamespaceSettings):
    """Where the captured database and Kafka Connect are. `truelog.support.settings` says where values come from."""

    # The embedded source is a second database of the embedded server.
    capture: bool = False
    source_host: str = ""  # of the embedded database by default, as are the port and the password of the role
    source_port: int = 0
    source_database: str = "source"
    source_user: str = "capture"  # by default, the role also has the namespace
    source_password: SecretStr = SecretStr("")
    source_sslmode: Literal["", "prefer", "require", "verify-ca", "verify-full"] = ""  # the database's by default
    source_ca_file: Path | None = None  # the database's by default
    capture_retained_bytes: PositiveInt = 2**30  # of the captured database's log, which raises a warning
    connect_port: int = 0  # at which Kafka Connect answers on this machine
    connect_password: SecretStr = SecretStr("")

    @field_validator("capture")
    @classmethod
    def _of_own_events(cls, value: bool, others: ValidationInfo) -> bool:
        if value and others.data.get("reads_bucket"):
            raise ValueError("captured tables become events, and an environment with TRUELOG_READS_BUCKET writes none")
        return value

    @property
    def source_role(self) -> str:
        """The role that captures. A chosen name stays as it is."""
        is_chosen = "source_user" in self.model_fields_set
        return self.source_user if is_chosen else self.names.in_postgresql(self.source_user)
