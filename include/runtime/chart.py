"""What the Helm chart must know of the platform: which settings it may set, and which secrets each process gets.

`runtime.made_files` writes this into `deploy/helm/truelog/`. A setting is in a Secret, in the values, or left out.
"""

import json
from collections.abc import Iterable, Iterator

from pydantic import SecretStr

from runtime.credentials import generated_secrets
from truelog.services import registry
from truelog.services.declaration import Bucket, Service
from truelog.storage import process_roles
from truelog.support.settings import KafkaUser, Settings

# The secrets of the stores' owners. Some Kafka needs no client of an OpenID provider.
_KEYS, _READER_KEYS = ("s3_access_key", "s3_secret_key"), ("s3_reader_access_key", "s3_reader_secret_key")
_STORES = ("kafka_password", "database_password", *_KEYS)
_OAUTH = "kafka_oauth_client_secret"
PRINCIPALS = tuple(user.password_setting for user in KafkaUser if user not in (KafkaUser.ADMIN, KafkaUser.CONNECT))
# Of database roles.
ROLES = ("api_password", "catalog_password", "stager_password", *map("{}_password".format, process_roles.RIGHTS))
_AIRFLOW_USERS = tuple(f"airflow_{user}_password" for user in ("admin", "oncall", "analyst"))

# The Job creates the roles, the principals and the first keys. It alone signs in as PostgreSQL's superuser.
PREPARE = (
    *(*_STORES, _OAUTH, *PRINCIPALS, *ROLES),
    *("postgres_password", "analyst_password", "airflow_password"),
    *("erasure_secret", "admin_key", "producer_key", "reader_key"),
)
# Airflow's tasks do the duties of the principals, send alerts and report lineage. People use the CLI in this pod:
# `truelog doctor` signs in as each role, and `truelog notifications add` looks the channel up.
AIRFLOW = (
    *(*_STORES, _OAUTH, *PRINCIPALS, *ROLES, *_AIRFLOW_USERS),
    *("airflow_password", "airflow_fernet_key", "airflow_jwt_secret", "airflow_secret_key"),
    *("erasure_secret", "alertmanager_url", "alertmanager_token", "pagerduty_key", "heartbeat_url"),
    *("openlineage_url", "openlineage_api_key", "spans_headers", "schema_registry_password"),
    "notification_channels",
)
# The operators of the stores know these. The platform generates the others.
GIVEN = (*(each for each in _STORES if each != "database_password"), "postgres_password")

_OTHER_SECRETS = ("s3_access_key", "s3_reader_access_key", "notification_channels")  # as text, and with tokens

# Services that the chart does not run, with the reason.
SERVICES_LEFT_OUT = {
    **dict.fromkeys(("kafka", "postgresql", "s3"), "the settings name stores that others run"),
    "connect": "it listens on 127.0.0.1 only, and `truelog up` writes its files",
}
# Secrets that no process of the chart has.
SECRETS_LEFT_OUT = {
    "kafka_controller_password": "of the embedded broker",
    "kafka_connect_password": "the chart does not run Kafka Connect",
    "connect_password": "the chart does not run Kafka Connect",
    "source_password": "the chart does not run Kafka Connect",
    "spark_secret": "Spark runs in the pod of Airflow",
    "visitor_salt": "access logs are imported where they are",
}
# Other settings that the values must not set.
_OWN = {"home", "jars_folder", "services", "stores", "airflow_port", "alert_pages_url"}  # the chart sets them
_IMAGE = {"views_folder", "events_folder", "dags_folder", "plugins_folder"}
_ELSEWHERE = {"kafka_controller_port", "spark_master", "spark_driver_host", "connect_port", "capture"}
_NOT_WIRED = ("source_", "capture_", "otlp_")


def is_secret(setting: str) -> bool:
    """Whether a setting must be in a Secret."""
    return Settings.model_fields[setting].annotation is SecretStr or setting in _OTHER_SECRETS


def plain_settings() -> list[str]:
    """The settings that the values may set."""
    left_out = _OWN | _IMAGE | _ELSEWHERE
    fields = (name for name in Settings.model_fields if not name.startswith(_NOT_WIRED))
    return sorted(name for name in fields if name not in left_out and not is_secret(name))


def secrets_of_services() -> dict[str, tuple[str, ...]]:
    """The secrets of each of Truelog's own services."""
    return {each.name: (*_secrets_of(each), *each.secrets) for each in registry.SERVICES}


def _secrets_of(service: Service) -> Iterator[str]:
    """The secrets with which a service connects. Where Kafka uses OAUTHBEARER, its clients are one client."""
    access = service.access
    principals = {service.kafka: service.kafka is not None, KafkaUser.READER: service.kafka and access.reads_topics}
    if access.administers_kafka:
        yield "kafka_password"
    yield "database_password" if access.role is None else f"{access.role}_password"
    yield from {Bucket.UNUSED: (), Bucket.READ: _READER_KEYS, Bucket.CHANGED: _KEYS}[access.bucket]
    if access.administers_kafka or service.kafka:
        yield _OAUTH
    yield from (user.password_setting for user, is_used in principals.items() if user and is_used)


def used_secrets() -> set[str]:
    """The secrets that some process of the chart has."""
    return {*PREPARE, *AIRFLOW, *(name for names in secrets_of_services().values() for name in names)}


def optional() -> list[str]:
    """The secrets that may be missing. Without them, the platform has no such receiver or channel."""
    return sorted(used_secrets() - generated_secrets().keys() - {*GIVEN})


def variable(setting: str) -> str:
    return f"TRUELOG_{setting.upper()}"


def processes() -> Iterator[str]:
    """The lines of `processes.yaml`, which the templates read."""
    secrets = secrets_of_services()
    yield "services:\n"
    for service in registry.SERVICES:
        yield f"  {service.name}:\n    module: {service.module}\n"
        if service.http:
            yield f"    port: {service.http.port}\n"
        if service.several:
            yield "    several: true\n"
        yield "    secrets:\n"
        yield from _listed(secrets[service.name], 6)
    for name, listed in (("prepare", PREPARE), ("airflow", AIRFLOW), ("optional", optional())):
        yield f"{name}:\n"
        yield from _listed(listed, 2)


def setting_names() -> Iterator[str]:
    """The lines of the values' schema with the settings that the values may set."""
    names = ",\n".join(f"          {json.dumps(variable(name))}" for name in plain_settings())
    yield f'        "enum": [\n{names}\n        ],\n'


def _listed(settings: Iterable[str], indent: int) -> Iterator[str]:
    yield from (f"{' ' * indent}- {variable(each)}\n" for each in settings)
