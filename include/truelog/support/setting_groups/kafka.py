"""How clients of Kafka connect: those of librdkafka, of Spark and of Kafka Connect."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr, ValidationInfo, field_validator

from truelog.support.setting_groups.certificates import named
from truelog.support.setting_groups.given import require_given
from truelog.support.setting_groups.jaas import jaas
from truelog.support.setting_groups.kafka_oauth import OAUTHBEARER, KafkaOauthSettings, missing_for_oauth
from truelog.support.setting_groups.namespace import NamespaceSettings

# Options of `truelog.kafka`, which every other client refuses.
NAMESPACE, READS = "truelog.namespace", "truelog.reads"
_CA = "TRUELOG_KAFKA_CA_FILE"
_PORT = 9092
# A broker that starts may say that the cluster has no brokers. The client then forgets all of them, and asks the
# bootstrap servers again after this time (decision 128).
_REBOOTSTRAP_MS = 10_000
_SPARK_GROUPS = "spark-kafka-source"  # the beginning of the names that Spark gives its consumer groups
_SERVER = re.compile(r"(\w+://)?(?P<host>\[[\w:.%]+\]|[^\s\[\]:/]+)(:(?P<port>\d+))?")


class KafkaUser(StrEnum):
    """Kafka's principals. Each has the rights for one duty (`truelog.log.access`)."""

    ADMIN = "truelog"  # set-up, which signs in as `kafka_user`
    COLLECTOR = "truelog-collector"
    CONNECT = "truelog-connect"
    ERASER = "truelog-eraser"
    PRODUCER = "truelog-producer"
    READER = "truelog-reader"
    TICKS = "truelog-ticks"
    RELAY = "truelog-relay"

    @property
    def password_setting(self) -> str:
        """The setting with the password of a principal with few rights."""
        return f"kafka_{self.name.lower()}_password"


class KafkaSettings(NamespaceSettings, KafkaOauthSettings):
    """Where Kafka is, and who signs in. `truelog.support.settings` says where values come from."""

    kafka_bootstrap: str
    kafka_user: str = "truelog"
    kafka_password: SecretStr = SecretStr("")  # of `kafka_user`; processes with principals of their own need none
    # The principals with few rights. If one has no password, its duty falls to `kafka_user`.
    kafka_collector_password: SecretStr = SecretStr("")
    kafka_connect_password: SecretStr = SecretStr("")
    kafka_eraser_password: SecretStr = SecretStr("")
    kafka_producer_password: SecretStr = SecretStr("")
    kafka_reader_password: SecretStr = SecretStr("")
    kafka_ticks_password: SecretStr = SecretStr("")
    kafka_relay_password: SecretStr = SecretStr("")
    kafka_protocol: Literal["SASL_PLAINTEXT", "SASL_SSL", "PLAINTEXT", "SSL"] = "SASL_PLAINTEXT"
    kafka_mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"] = "SCRAM-SHA-512"
    kafka_ca_file: Path | None = None  # a PEM file with the brokers' CA; what each client trusts by default

    @property
    def kafka_passwords(self) -> dict[KafkaUser, SecretStr]:
        """The passwords of the principals with few rights. A password may be empty."""
        return {user: getattr(self, user.password_setting) for user in KafkaUser if user is not KafkaUser.ADMIN}

    @field_validator("kafka_bootstrap")
    @classmethod
    def _with_ports(cls, value: str) -> str:
        """Add the usual port where none is named, because Java's clients refuse such a server."""
        found = {each: _SERVER.fullmatch(each) for each in map(str.strip, value.split(",")) if each}
        wrong = [each for each, server in found.items() if server is None]
        if wrong or not found:
            raise ValueError(f"{', '.join(wrong) or 'no server'}: name servers as host:port, or [IPv6]:port")
        return ",".join(f"{server['host']}:{server['port'] or _PORT}" for server in found.values() if server)

    @field_validator("kafka_protocol", mode="before")
    @classmethod
    def _as_librdkafka(cls, value: object) -> object:
        """Accept small letters, as librdkafka does, but not Java."""
        return value.upper() if isinstance(value, str) else value

    @field_validator("kafka_mechanism")
    @classmethod
    def _with_a_client(cls, value: str, others: ValidationInfo) -> str:
        if value == OAUTHBEARER and (missing := missing_for_oauth(others.data)):
            raise ValueError(f"{OAUTHBEARER} needs {', '.join(missing)}")
        return value

    @property
    def kafka_uses_oauth(self) -> bool:
        return self.kafka_mechanism == OAUTHBEARER and self.kafka_protocol.startswith("SASL")

    @property
    def kafka_sign_in_settings(self) -> str:
        """The settings to check if Kafka refuses a principal."""
        return "TRUELOG_KAFKA_OAUTH_…" if self.kafka_uses_oauth else "TRUELOG_KAFKA_…_PASSWORD"

    @property
    def kafka_servers(self) -> list[tuple[str, int]]:
        """The host and the port of each bootstrap server."""
        parts = (each.rpartition(":") for each in self.kafka_bootstrap.split(","))
        return [(host.strip("[]"), int(port)) for host, _, port in parts]

    @property
    def kafka_is_encrypted(self) -> bool:
        return self.kafka_protocol.endswith("SSL")

    @property
    def kafka_trust(self) -> str | None:
        """The file of the CA that clients trust; None without TLS, or if each client trusts what it does by default."""
        return named(self.kafka_ca_file, _CA) if self.kafka_is_encrypted else None

    def kafka(self, user: KafkaUser = KafkaUser.ADMIN) -> dict[str, Any]:
        """Options of a client in `truelog.kafka`."""
        trust = self.kafka_trust
        return {
            "bootstrap.servers": self.kafka_bootstrap,
            "security.protocol": self.kafka_protocol,
            "sasl.mechanism": self.kafka_mechanism,
            **(self._oauth_of_librdkafka() if self.kafka_uses_oauth else self._password_of_librdkafka(user)),
            "metadata.recovery.rebootstrap.trigger.ms": _REBOOTSTRAP_MS,
            **({"ssl.ca.location": trust} if trust else {}),
            **({NAMESPACE: self.namespace} if self.namespace else {}),
            **({READS: self.reads_namespace} if self.reads_events else {}),
        }

    def connect_kafka(self) -> dict[str, str]:
        """Properties for Kafka Connect and its producers, which write what they capture."""
        return self._java(KafkaUser.CONNECT)

    def connect_java_options(self) -> list[str]:
        """Options for the JVM of Kafka Connect, without secrets."""
        return self._allowed_in_java() if self.kafka_uses_oauth else []

    def spark_kafka(self) -> dict[str, str]:
        """Options for Spark's Kafka source, which plans batches up to the end of the committed records."""
        return {
            "kafka.bootstrap.servers": self.kafka_bootstrap,
            **{f"kafka.{name}": value for name, value in self._java(KafkaUser.READER).items()},
            "kafka.isolation.level": "read_committed",
            **({"groupIdPrefix": self.names.in_kafka(_SPARK_GROUPS)} if self.namespace else {}),
        }

    def _java(self, user: KafkaUser) -> dict[str, str]:
        """Properties of a Java client, without the addresses."""
        trust = self.kafka_trust
        return {
            "security.protocol": self.kafka_protocol,
            "sasl.mechanism": self.kafka_mechanism,
            **(self._oauth_of_java() if self.kafka_uses_oauth else self._password_of_java(user)),
            **({"ssl.truststore.type": "PEM", "ssl.truststore.location": trust} if trust else {}),
        }

    def _password_of_librdkafka(self, user: KafkaUser) -> dict[str, str]:
        name, password = self._kafka_login(user)
        return {"sasl.username": name, "sasl.password": password}

    def _password_of_java(self, user: KafkaUser) -> dict[str, str]:
        return {"sasl.jaas.config": jaas(self.kafka_mechanism, *self._kafka_login(user))}

    def _kafka_login(self, user: KafkaUser) -> tuple[str, str]:
        """The name and the password of a principal, or of `kafka_user` if the principal has no password."""
        if user is not KafkaUser.ADMIN and (password := self.kafka_passwords[user]):
            return self.names.in_kafka(user.value), password.get_secret_value()
        if self.kafka_protocol.startswith("SASL"):
            require_given(self, "kafka_password", "" if user is KafkaUser.ADMIN else user.password_setting)
        return self.kafka_user, self.kafka_password.get_secret_value()
