"""The login configuration of Java's Kafka clients (JAAS)."""

from collections.abc import Mapping

_PACKAGE = "org.apache.kafka.common.security"
_SCRAM, _PLAIN = "scram.ScramLoginModule", "plain.PlainLoginModule"


def jaas(mechanism: str, user: str, password: str) -> str:
    """The login of a user with a password."""
    module = _SCRAM if mechanism.startswith("SCRAM") else _PLAIN
    return login(module, {"username": user, "password": password})


def login(module: str, options: Mapping[str, str]) -> str:
    """The login with one of Kafka's modules."""
    return f"{_PACKAGE}.{module} required {' '.join(f'{name}={_quoted(each)}' for name, each in options.items())};"


def _quoted(value: str) -> str:
    """A value in quotes. A password that others chose may contain quotes itself."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
