"""The names of datasets are those of the library's own rules, and each origin reports the same name."""

import pytest
from openlineage.client.naming.dataset import Kafka, Postgres

from truelog.lineage import dataset
from truelog.support.settings import Settings


def named(settings: Settings, **values: object) -> Settings:
    return settings.model_copy(update={"kafka_bootstrap": "k1.example:9094,k2.example:9092", **values})


def test_names_follow_the_rules_of_the_library(settings: Settings) -> None:
    chosen = named(settings, database_host="db.example", database_port=5433, database_name="shop", s3_bucket="lake")
    topic, view = dataset.topic(chosen, "click"), dataset.view(chosen, "page_views")
    by_library = Kafka("k1.example", "9094", "click"), Postgres("db.example", "5433", "shop", "views", "page_views")
    for made, expected in zip((topic, view), by_library, strict=True):
        assert (made.namespace, made.name) == (expected.get_namespace(), expected.get_name())
    table = dataset.archive_table(chosen, "click")
    assert (table.namespace, table.name) == ("s3://lake", "log.click")


def test_an_environment_with_a_namespace_reports_the_names_of_the_server(settings: Settings) -> None:
    assert dataset.topic(named(settings, namespace="blue"), "click").name == "blue.click"


@pytest.mark.parametrize("host", ["[::1]", "[2001:db8::7]"])
def test_an_address_of_ipv6_stays_a_part_of_a_uri(settings: Settings, host: str) -> None:
    chosen = named(settings, kafka_bootstrap=f"{host}:9092", database_host=host.strip("[]"), database_port=5432)
    assert dataset.topic(chosen, "click").namespace == f"kafka://{host}:9092"
    assert dataset.view(chosen, "v").namespace == f"postgres://{host}:5432"
