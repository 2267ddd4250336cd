"""Spark reads the archive by Iceberg's REST protocol with the properties of `docs/bi.md`, and can change nothing."""

import re
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.library.archive_files import OF_TWO_DAYS, TOPIC, append_value
from tests.library.services.api.streaming import Served
from truelog.archive.table import identifier, open_catalog
from truelog.support.settings import PROJECT, Settings

PAGE = (PROJECT / "docs" / "bi.md").read_text()
[PROPERTIES] = re.findall(r"```properties\n(spark\.sql\.catalog\.lake=.*?)```", PAGE, re.DOTALL)
TABLE = f"lake.log.{TOPIC}"


@pytest.fixture
def lake(spark: SparkSession, archived: Settings, served: Served, archivist: str) -> SparkSession:
    """A session that knows the API and the bucket's keys, and asks for lists in pages."""
    return attached(spark, archived, served, archivist)


def attached(spark: SparkSession, settings: Settings, served: Served, key: str) -> SparkSession:
    session = spark.newSession()
    values = {
        "TRUELOG_API": served.url,
        "ARCHIVE_TOKEN": key,
        "ARCHIVE_KEY": settings.s3_access_key,
        "ARCHIVE_SECRET": settings.s3_secret_key.get_secret_value(),
    }
    for line in PROPERTIES.split():
        name, _, value = line.partition("=")
        session.conf.set(name, re.sub("|".join(values), lambda found: values[found[0]], value))
    session.conf.set("spark.sql.catalog.lake.rest-page-size", "1")
    return session


def rows(session: SparkSession, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in session.sql(f"SELECT partition, offset, value, host FROM {table}").collect())


def test_spark_reads_what_the_archive_has(spark: SparkSession, lake: SparkSession, archived: Settings) -> None:
    found = rows(lake, TABLE)
    assert found == rows(spark, f"archive.{identifier(TOPIC)}")
    assert [value for *_, value, _ in found] == [bytearray(each) for each in OF_TWO_DAYS]
    march = "event_time >= '2026-03-02 00:00:00' AND event_time < '2026-03-03 00:00:00'"
    assert lake.sql(f"SELECT offset FROM {TABLE} WHERE {march}").collect() == [(1,)]
    assert (TOPIC,) in [(row.tableName,) for row in lake.sql("SHOW TABLES IN lake.log").collect()]
    assert [row.namespace for row in lake.sql("SHOW NAMESPACES IN lake").collect()] == ["log"]
    assert lake.sql(f"SELECT count(*) FROM {TABLE}.snapshots").collect() == [(len(OF_TWO_DAYS),)]
    append_value(archived, len(OF_TWO_DAYS), OF_TWO_DAYS[0])
    lake.catalog.refreshTable(TABLE)
    assert len(rows(lake, TABLE)) == len(OF_TWO_DAYS) + 1


def test_spark_changes_nothing(lake: SparkSession, archived: Settings) -> None:
    with open_catalog(archived) as catalog:
        before = catalog.load_table(identifier(TOPIC)).metadata_location
        for statement in (
            f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('owner' = 'me')",
            f"DROP TABLE {TABLE}",
            "CREATE TABLE lake.log.mine (id int) USING iceberg",
            "CREATE NAMESPACE lake.mine",
        ):
            with pytest.raises(Exception, match=r"(?i)does not support|not supported"):
                lake.sql(statement)
        assert catalog.load_table(identifier(TOPIC)).metadata_location == before


def test_spark_gets_the_reason_of_a_refusal(spark: SparkSession, archived: Settings, served: Served) -> None:
    reader = attached(spark, archived, served, archived.reader_key.get_secret_value())
    with pytest.raises(Exception, match="use a key with the role archivist"):
        reader.sql(f"SELECT * FROM {TABLE}")
