"""The configuration of Kafka Connect: the worker, and a connector for each captured table.

Each table has its own connector, replication slot and publication, so a bad table never stops another. Passwords are in
a file that only the owner can read. Connect's configuration names the file, and its REST interface shows only the name.
"""

from collections.abc import Mapping
from pathlib import Path

from truelog.capture.source_table import publication
from truelog.schema.change import SNAPSHOT_END
from truelog.schema.event import EventType
from truelog.support.files import private_folder, write_private
from truelog.support.settings import Settings

HEARTBEAT_SECONDS = 10
REST_USER = "truelog"
_TRANSFORMS = "org.apache.kafka.connect.transforms"
_JSON = "org.apache.kafka.connect.json.JsonConverter"


def folder(settings: Settings) -> Path:
    return settings.home / "connect"


def connectors(settings: Settings) -> Path:
    """The folder with one file for each connector."""
    return folder(settings) / "connectors"


def file(settings: Settings, name: str) -> Path:
    """The file of the connector of a captured table, which has the connector's name."""
    return connectors(settings) / f"{settings.names.in_kafka(name)}.properties"


def offsets_file(settings: Settings) -> Path:
    """Where Connect keeps how far each connector has read."""
    return folder(settings) / "offsets"


def prefix(file: Path) -> str:
    """The prefix in the file of a connector, by which Debezium keeps its offsets."""
    return dict(line.split("=", 1) for line in file.read_text().splitlines())["topic.prefix"]


def write_worker(settings: Settings) -> None:
    """Write the worker's files. Only its owner can read them."""
    home = private_folder(folder(settings))
    private_folder(connectors(settings))
    kafka = settings.connect_kafka()
    secrets = {"kafka": kafka["sasl.jaas.config"], "source": settings.source_password.get_secret_value()}
    write_private(home / "secrets.properties", properties(secrets))
    write_private(home / "rest.properties", properties({REST_USER: settings.connect_password.get_secret_value()}))
    login = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"
    write_private(home / "jaas.conf", f'KafkaConnect {{ {login} required file="{home / "rest.properties"}"; }};\n')
    hidden = kafka | {"sasl.jaas.config": _secret(settings, "kafka")}
    write_private(
        home / "worker.properties",
        properties(
            {
                "bootstrap.servers": settings.kafka_bootstrap,
                "key.converter": _JSON,
                "value.converter": _JSON,
                "key.converter.schemas.enable": "false",
                "value.converter.schemas.enable": "false",
                "offset.storage.file.filename": str(offsets_file(settings)),
                "offset.flush.interval.ms": "2000",
                "listeners": f"http://127.0.0.1:{settings.connect_port}",
                "rest.extension.classes": (
                    "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
                ),
                "plugin.discovery": "only_scan",
                "topic.creation.enable": "false",  # only declared topics exist
                "config.providers": "file",
                "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
                **hidden,
                **{f"producer.{name}": value for name, value in hidden.items()},
            }
        ),
    )


def configuration(settings: Settings, event_type: EventType, epoch: int) -> dict[str, str]:
    """The connector of a captured table. Another epoch has another prefix, so that Debezium begins with a snapshot."""
    slot = publication(settings.names, event_type)
    return {
        "name": settings.names.in_kafka(event_type.name),
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "plugin.name": "pgoutput",
        **settings.source_connector(),
        "database.password": _secret(settings, "source"),
        "topic.prefix": f"{settings.names.in_kafka(event_type.name)}-{epoch}",
        "slot.name": slot,
        "publication.name": slot,
        "publication.autocreate.mode": "disabled",
        "table.include.list": str(event_type.topic.source),
        "snapshot.mode": "initial",
        **_end_of_snapshot(settings, event_type, epoch),
        # A slot that was dropped and made again lacks changes: fail instead of going on behind them.
        "offset.mismatch.strategy": "trust_offset",
        # Values as text where a number or a Java type could not hold them.
        "decimal.handling.mode": "string",
        "time.precision.mode": "isostring",
        "interval.handling.mode": "string",
        "binary.handling.mode": "base64",
        "skipped.operations": "none",  # by default, truncations are left out
        "tombstones.on.delete": "true",
        # A message in the log moves the slot of a quiet table, and says how far the topic has come.
        "heartbeat.interval.ms": str(HEARTBEAT_SECONDS * 1000),
        "heartbeat.action.query": "SELECT pg_logical_emit_message(true, 'truelog', '')",
        **_transforms(settings.names.topic_of(event_type.name)),
    }


def _end_of_snapshot(settings: Settings, event_type: EventType, epoch: int) -> dict[str, str]:
    """Let the query of the snapshot write a message to the log, which Debezium reads after all rows of the snapshot.

    PostgreSQL evaluates the condition once, before it reads the first row, also if there is none. An attempt that was
    interrupted leaves a message that is before the place from which the next attempt streams.
    """
    source, table = str(event_type.topic.source), settings.names.in_kafka(event_type.name)
    content = (
        f"json_build_object('epoch', {epoch}, "
        "'began', coalesce(current_setting('truelog.began', true), '0')::bigint)::text"
    )
    written = f"SELECT pg_logical_emit_message(false, '{SNAPSHOT_END}{table}', {content})"
    return {
        # Where the log was when the session began: below each row of this attempt, and above each earlier attempt's.
        "database.initial.statements": (
            "SELECT set_config('truelog.began', (pg_current_wal_lsn() - '0/0'::pg_lsn)::text, false)"
        ),
        "snapshot.select.statement.overrides": source,
        f"snapshot.select.statement.overrides.{source}": (
            f"SELECT * FROM {source} WHERE ({written}) IS NOT NULL"  # noqa: S608
        ),
    }


def _transforms(topic: str) -> dict[str, str]:
    """Leave out Debezium's own heartbeats, write to the event type's topic, and give truncations a key."""
    return {
        "predicates": "heartbeat",
        "predicates.heartbeat.type": f"{_TRANSFORMS}.predicates.TopicNameMatches",
        "predicates.heartbeat.pattern": "__debezium-heartbeat.*",
        "transforms": "quiet,topic,key",
        "transforms.quiet.type": f"{_TRANSFORMS}.Filter",
        "transforms.quiet.predicate": "heartbeat",
        "transforms.topic.type": f"{_TRANSFORMS}.RegexRouter",
        "transforms.topic.regex": ".*",
        "transforms.topic.replacement": topic,
        "transforms.key.type": f"{_TRANSFORMS}.HoistField$Key",
        "transforms.key.field": "key",
    }


def properties(values: Mapping[str, str]) -> str:
    """A file in Java's format."""
    return "".join("{}={}\n".format(name, value.replace("\\", "\\\\")) for name, value in values.items())


def _secret(settings: Settings, name: str) -> str:
    """How the configuration names a secret."""
    return f"${{file:{folder(settings) / 'secrets.properties'}:{name}}}"
