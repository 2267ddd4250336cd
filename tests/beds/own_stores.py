"""Kafka, PostgreSQL and S3 as a platform team runs them: with TLS, and with certificates of its own CA."""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import runtime
from runtime import kafka, postgresql, s3
from tests.beds.authority import PASSWORD, Authority, Identity
from tests.beds.tls_front import tls_front
from tests.deadline import deadline, until
from truelog.support.files import write_private
from truelog.support.settings import Settings

Change = Callable[[str], str]


@contextmanager
def own_stores(home: Path, authority: Authority) -> Iterator[tuple[Settings, dict[str, object]]]:
    """The settings of the servers without TLS, and the settings with which a platform reaches them with TLS."""
    settings, identity = runtime.set_up(home, random_ports=True), authority.identity()
    for module in (postgresql, kafka, s3):
        module.configure(settings)
    rewrite(home / "kafka" / "server.properties", _kafka_with_tls(identity, authority))
    rewrite(home / "s3" / "s3proxy.properties", _s3_with_tls(identity))
    with ExitStack() as started:
        for service in (postgresql.SERVICE, kafka.SERVICE, s3.SERVICE):
            started.enter_context(running(home, service.name, service.command(settings), service.user))
        front = tls_front(settings.database_port, identity.context(), of_postgresql=True)
        reached = {
            "stores": "own",
            "kafka_protocol": "SASL_SSL",
            "kafka_ca_file": authority.file,
            "database_port": started.enter_context(front),
            "database_sslmode": "verify-full",
            "database_ca_file": authority.file,
            "s3_endpoint": settings.s3_endpoint.replace("http:", "https:"),
            "s3_ca_file": authority.file,
        }
        reachable = settings.model_copy(update=reached)
        for module in (postgresql, kafka, s3):
            until(partial(module.ready, reachable), 60, module.__name__)
        yield settings, reached


def _kafka_with_tls(identity: Identity, authority: Authority) -> Change:
    more = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": identity.pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.file,
    }
    lines = "".join(f"{name}={value}\n" for name, value in more.items())
    return lambda text: text.replace("CLIENT:SASL_PLAINTEXT", "CLIENT:SASL_SSL") + lines


def _s3_with_tls(identity: Identity) -> Change:
    lines = f"s3proxy.keystore-path={identity.pkcs12}\ns3proxy.keystore-password={PASSWORD}\n"
    return lambda text: text.replace("s3proxy.endpoint=http:", "s3proxy.secure-endpoint=https:") + lines


def rewrite(file: Path, change: Change) -> None:
    write_private(file, change(file.read_text()))


@contextmanager
def running(
    home: Path, name: str, command: list[str], user: str | None = None, environment: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process, which ends with the block. Its log is in the home."""
    log, variables = home / f"{name}.log", os.environ | dict(environment or {})
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd="/", stdout=output, stderr=subprocess.STDOUT, user=user, env=variables)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(deadline(60))
