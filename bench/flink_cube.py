"""The cube in Flink SQL: JSON from Kafka, grouped by minute and cell, upserted into PostgreSQL.

Runs in the `.venv-flink` environment until it is ended. The reader of the results counts the page views in PostgreSQL.
"""

import json
import sys
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

_SETTINGS = {
    "execution.checkpointing.interval": "5 s",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "pipeline.object-reuse": "true",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "table.local-time-zone": "UTC",
}
# As in Truelog, the time when the device sent the event corrects its clock.
_SOURCE = """
CREATE TABLE page_view (
    occurred_at TIMESTAMP_LTZ(3), sent_at TIMESTAMP_LTZ(3), url STRING, browser STRING, `bytes` BIGINT,
    broker_time TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'
) WITH (
    'connector' = 'kafka', 'topic' = 'page_view', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json',
    'json.timestamp-format.standard' = 'ISO-8601', {properties}
)
"""
_SINK = """
CREATE TABLE page_views (
    `minute` TIMESTAMP(3), host STRING, page STRING, browser STRING, `views` BIGINT, `bytes` BIGINT,
    PRIMARY KEY (`minute`, host, page, browser) NOT ENFORCED
) WITH (
    'connector' = 'jdbc', 'table-name' = 'bench.flink_page_views', 'sink.buffer-flush.max-rows' = '5000',
    'sink.buffer-flush.interval' = '1 s', {properties}
)
"""
_CUBE = """
INSERT INTO page_views
SELECT `minute`, host, page, browser, count(*), sum(`bytes`) FROM (
    SELECT FLOOR(CAST(COALESCE(
            TIMESTAMPADD(SECOND, TIMESTAMPDIFF(SECOND, sent_at, broker_time), occurred_at), occurred_at
        ) AS TIMESTAMP(3)) TO MINUTE) AS `minute`,
        COALESCE(PARSE_URL(url, 'HOST'), '') AS host, COALESCE(PARSE_URL(url, 'PATH'), '') AS page,
        COALESCE(browser, '') AS browser, `bytes`
    FROM page_view
) GROUP BY `minute`, host, page, browser
"""


def _properties(values: dict[str, Any]) -> str:
    return ", ".join(f"'{name}' = '{str(value).replace(chr(39), 2 * chr(39))}'" for name, value in values.items())


def main() -> None:
    given = json.load(sys.stdin)
    configuration = Configuration()
    for name, value in {**_SETTINGS, "parallelism.default": given["cores"], "pipeline.jars": given["jars"]}.items():
        configuration.set_string(name, str(value))
    environment = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    )
    kafka = {f"properties.{name}": value for name, value in given["kafka"].items()}
    environment.execute_sql(_SOURCE.format(properties=_properties(kafka)))
    environment.execute_sql(_SINK.format(properties=_properties(given["database"])))
    environment.execute_sql(_CUBE).wait()


if __name__ == "__main__":
    main()
