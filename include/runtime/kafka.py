"""Kafka, the log. One KRaft process is both broker and controller, and every listener requires a credential."""

import logging
import re
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from confluent_kafka import KafkaException

from runtime.ports import LOOPBACK
from runtime.service import Service, is_embedded, private_folder
from truelog.log import access, admin_client, topics
from truelog.schema.loading.events import load_proposals
from truelog.spark.java import java
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.files import write_private
from truelog.support.settings import KafkaUser, Settings, jaas

log = logging.getLogger("truelog.runtime")

_ERROR, _ERROR_LINES = re.compile(r" ERROR |^(Caused by: )?[\w.$]+(Exception|Error)\b"), 20
LOGGING = Path(__file__).with_name("kafka-log4j2.properties")


def configure(settings: Settings) -> None:
    """Write the server properties and format the log folder. An incomplete folder is formatted again."""
    settings.jars("kafka")
    if settings.kafka_uses_oauth:
        raise NotSetUp(f"the embedded Kafka knows no {settings.kafka_mechanism}, which needs TRUELOG_STORES=own")
    home = private_folder(settings.home / "kafka")
    properties = "".join(f"{name}={value}\n" for name, value in _properties(settings).items())
    write_private(home / "server.properties", properties)
    if not (home / "data" / "meta.properties").exists():
        shutil.rmtree(home / "data", ignore_errors=True)
        _format(settings, home)


def command(settings: Settings) -> list[str]:
    home = settings.home / "kafka"
    memory = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"]
    logs = f"-Dlog4j2.configurationFile={LOGGING}"
    return [
        java(settings),
        *memory,
        logs,
        *_class_path(settings),
        "kafka.Kafka",
        str(home / "server.properties"),
    ]


def ready(settings: Settings) -> None:
    """Raise ServiceDown unless the broker answers and has joined its cluster."""
    broker = admin_client.Client(settings, KafkaUser.ADMIN)
    try:
        brokers = broker.list_topics(timeout=3).brokers
    except KafkaException as error:
        raise ServiceDown(admin_client.reason(broker, error.args[0])) from error
    if not brokers:
        raise ServiceDown("no broker has joined the cluster yet")


def prepare(settings: Settings) -> None:
    """Create the principals and the declared topics. A bad topic or file does not hold up the others.

    The registration adds partitions, when the database can say which views and folds they would harm. The topics of
    another environment are left alone.
    """
    access.create_users(topics.client(settings, KafkaUser.ADMIN), settings)
    if settings.reads_events:
        return
    types, broken = load_proposals(settings.events_folder)
    for name, reason in (broken | topics.sync_each(settings, types, grow=False)).items():
        log.error("%s: %s", name, reason)


def address(settings: Settings) -> str:
    return settings.kafka_bootstrap


def _properties(settings: Settings) -> dict[str, object]:
    password = settings.kafka_password.get_secret_value()
    controller = settings.kafka_controller_password.get_secret_value()
    at_controller = f"{LOOPBACK}:{settings.kafka_controller_port}"
    plain = jaas("PLAIN", "controller", controller)
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.bootstrap.servers": at_controller,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CLIENT://{settings.kafka_bootstrap},CONTROLLER://{at_controller}",
        "advertised.listeners": f"CLIENT://{settings.kafka_bootstrap},CONTROLLER://{at_controller}",
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        "sasl.mechanism.inter.broker.protocol": settings.kafka_mechanism,
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.client.sasl.enabled.mechanisms": settings.kafka_mechanism,
        f"listener.name.client.{settings.kafka_mechanism.lower()}.sasl.jaas.config": jaas(
            settings.kafka_mechanism, settings.kafka_user, password
        ),
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": f'{plain[:-1]} user_controller="{controller}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": f"User:{settings.kafka_user};User:controller",
        "log.dirs": settings.home / "kafka" / "data",
        # The broker sets the time of each record, and only declared topics exist.
        "log.message.timestamp.type": "LogAppendTime",
        "auto.create.topics.enable": "false",
        # A single broker stores one copy. A cluster needs a different configuration.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
        # A broker on a busy machine sends no heartbeat for seconds. A killed one can rejoin only after this time.
        "broker.session.timeout.ms": 10_000,
        "broker.heartbeat.interval.ms": 500,
    }


def _format(settings: Settings, home: Path) -> None:
    """Format the log. Java reads its arguments from a private file. Only errors are shown, as the output has keys."""
    password = settings.kafka_password.get_secret_value()
    cluster = (
        urlsafe_b64encode(b"\x01" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    )  # the tool refuses a leading dash
    scram = f"{settings.kafka_mechanism}=[name={settings.kafka_user},password={password}]"
    properties = home / "server.properties"
    words = [*_class_path(settings), f"-Dlog4j2.configurationFile={LOGGING}", "kafka.tools.StorageTool"]
    words += ["format", "--standalone", "-t", cluster, "-c", str(properties), "--add-scram", scram]
    arguments = home / "format.arguments"
    write_private(arguments, "\n".join(f'"{word}"' for word in words))
    try:
        ended = subprocess.run([java(settings), f"@{arguments}"], capture_output=True, text=True, check=False)
    finally:
        arguments.unlink()
    if ended.returncode != 0:
        errors = [*filter(_ERROR.search, ended.stdout.splitlines()), *ended.stderr.splitlines()]
        shown = "\n".join(errors[-_ERROR_LINES:]).replace(password, "********")
        raise NotSetUp(f"Kafka could not format {home / 'data'}; is the disk full or read-only?\n{shown}")


def _class_path(settings: Settings) -> list[str]:
    return ["-cp", str(settings.jars_home / "kafka" / "*")]


SERVICE = Service(
    name="kafka",
    configure=configure,
    command=command,
    ready=ready,
    prepare=prepare,
    address=address,
    ports=lambda settings: (int(settings.kafka_bootstrap.rpartition(":")[2]), settings.kafka_controller_port),
    is_wanted=is_embedded,
)
