"""`truelog up NAME` on a platform of an earlier release, whose services do not know the new principals and roles."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)
from psycopg import sql
from pyspark.sql import SparkSession

import runtime
from runtime import kafka, postgresql
from truelog.log import topics
from truelog.support.errors import ServiceDown
from truelog.support.settings import CATALOG_ROLE, STAGER, KafkaUser, Settings

pytestmark = pytest.mark.own_servers

READER = KafkaUser.READER
ANY_RULE = (ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{READER}", None)


@pytest.fixture
def earlier(platform: Settings) -> Iterator[Settings]:
    """The running platform without a principal and two roles whose passwords are in the settings."""
    broker = topics.client(platform, KafkaUser.ADMIN)
    rules = AclBindingFilter(*ANY_RULE, AclOperation.ANY, AclPermissionType.ANY)
    for deleted in broker.delete_acls([rules]).values():
        deleted.result()
    forgotten = UserScramCredentialDeletion(READER.value, ScramMechanism[platform.kafka_mechanism.replace("-", "_")])
    broker.alter_user_scram_credentials([forgotten])[READER.value].result()
    with psycopg.connect(**as_admin(platform), autocommit=True) as connection:
        for role in (STAGER, CATALOG_ROLE):
            for statement in ("DROP OWNED BY {}", "DROP ROLE {}"):
                connection.execute(sql.SQL(statement).format(sql.Identifier(role)))
    yield platform
    kafka.prepare(platform)
    postgresql.prepare(platform)
    if (spark := SparkSession.getActiveSession()) is not None:
        spark.stop()  # its connections use the role that was dropped


def test_one_service_is_started_when_the_others_know_the_new_passwords(earlier: Settings) -> None:
    with pytest.raises(ServiceDown, match="Authentication failed"):
        topics.end_offsets(earlier, ["page_view"])
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(earlier.staging_uri())

    runtime.up(earlier, ["s3"], tethered=True)

    assert "page_view" in topics.end_offsets(earlier, ["page_view"]).offsets
    with psycopg.connect(earlier.staging_uri()) as connection:
        assert connection.execute("SELECT current_user").fetchone() == (STAGER,)


def as_admin(settings: Settings) -> dict[str, Any]:
    return settings.database() | {"user": "postgres", "password": settings.postgres_password.get_secret_value()}
