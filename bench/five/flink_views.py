"""The five views in Flink SQL: JSON from Kafka, one statement for each view, upserted into PostgreSQL.

Runs in the `.venv-flink` environment until it is ended. Each statement follows the definition of the view in
`spark_apps/views/`. A cart's events are in one partition, so their offsets are their order.
"""

import json
import sys
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

_SETTINGS = {
    "execution.checkpointing.interval": "5 s",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "table.local-time-zone": "UTC",
}
# As in Truelog, the time when the device sent the event corrects its clock.
_SOURCE = """
CREATE TABLE `{topic}` (
    event_id STRING, occurred_at TIMESTAMP_LTZ(3), sent_at TIMESTAMP_LTZ(3), {columns},
    broker_time TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', log_offset BIGINT METADATA FROM 'offset',
    event_time AS CAST(COALESCE(
        TIMESTAMPADD(SECOND, TIMESTAMPDIFF(SECOND, sent_at, broker_time), occurred_at), occurred_at
    ) AS TIMESTAMP(3)),
    arrived AS PROCTIME(), WATERMARK FOR event_time AS event_time - INTERVAL '1' MINUTE
) WITH (
    'connector' = 'kafka', 'topic' = '{topic}', 'scan.startup.mode' = 'latest-offset', 'format' = 'json',
    'json.timestamp-format.standard' = 'ISO-8601', {properties}
)
"""
_SOURCES = {
    "page_view": "url STRING, ip STRING, browser STRING, `bytes` BIGINT",
    "search": "results STRING",  # the text of the JSON array
    "click": "search_id STRING, url STRING",
    "cart_event": "cart_id STRING, verb STRING, product STRING, quantity BIGINT",
    "follow": "follower_id STRING, followee_id STRING, verb STRING",
    "tweet": "tweet_id STRING, author_id STRING, verb STRING",
}
_SINK = """
CREATE TABLE {view} ({columns} NOT ENFORCED) WITH (
    'connector' = 'jdbc', 'table-name' = '{schema}.{view}', 'sink.buffer-flush.max-rows' = '1000',
    'sink.buffer-flush.interval' = '200 ms', {properties}
)
"""
_SINKS = {
    "page_views": "`minute` TIMESTAMP(3), host STRING, page STRING, browser STRING, `views` BIGINT, `bytes` BIGINT, "
    "PRIMARY KEY (`minute`, host, page, browser)",
    "request_rates": "pane TIMESTAMP(3), ip STRING, requests BIGINT, PRIMARY KEY (pane, ip)",
    "cart": "cart_id STRING, product STRING, quantity BIGINT, changed_at TIMESTAMP(3), checked_out_at TIMESTAMP(3), "
    "PRIMARY KEY (cart_id, product)",
    "click_through": "search_id STRING, asked_at TIMESTAMP(3), results STRING, clicked STRING, PRIMARY KEY (search_id)",
    "home_timeline": "reader_id STRING, tweeted_at TIMESTAMP(3), tweet_id STRING, "
    "PRIMARY KEY (reader_id, tweeted_at, tweet_id)",
}
_STEPS = {
    # A copy of an event counts once.
    "cart_once": """
        SELECT cart_id, verb, product, quantity, CAST(event_time AS TIMESTAMP(3)) AS event_time, log_offset FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY cart_id, event_id ORDER BY arrived) AS copy
            FROM cart_event WHERE verb IN ('added', 'quantity_changed', 'removed', 'checked_out')
        ) WHERE copy = 1
    """,
    "cart_numbered": """
        SELECT *, SUM(CASE verb WHEN 'checked_out' THEN 1 ELSE 0 END) OVER (
            PARTITION BY cart_id ORDER BY log_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS checkouts FROM cart_once
    """,
    "checkouts": """
        SELECT cart_id, MIN(event_time) AS checked_out_at FROM cart_numbered
        WHERE verb = 'checked_out' AND checkouts = 1 GROUP BY cart_id
    """,
    # What comes after the first check-out changes nothing.
    "cart_changes": "SELECT * FROM cart_numbered WHERE checkouts = 0 AND product IS NOT NULL",
    # An event that sets the quantity begins a new run; the product's quantity is the sum over its last run.
    "cart_runs": """
        SELECT *, SUM(CASE WHEN verb = 'added' THEN 0 ELSE 1 END) OVER (
            PARTITION BY cart_id, product ORDER BY log_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS run FROM cart_changes
    """,
    "cart_sums": """
        SELECT cart_id, product, log_offset, MAX(event_time) OVER runs AS changed_at,
            SUM(CASE verb WHEN 'removed' THEN 0 ELSE COALESCE(quantity, 0) END) OVER runs AS quantity
        FROM cart_runs WINDOW runs AS (
            PARTITION BY cart_id, product, run ORDER BY log_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
    """,
    "cart_last": """
        SELECT cart_id, product, quantity, changed_at FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY cart_id, product ORDER BY log_offset DESC) AS place FROM cart_sums
        ) WHERE place = 1
    """,
    # The order is a time attribute alone, because Flink 2.3 loses deletions otherwise (FLINK-40368). Of two events with
    # one time, the later one to arrive counts.
    "follows": """
        SELECT follower_id, followee_id FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY follower_id, followee_id ORDER BY event_time DESC) AS place
            FROM `follow` WHERE verb IN ('followed', 'unfollowed')
        ) WHERE place = 1 AND verb = 'followed'
    """,
    "tweets": """
        SELECT tweet_id, author_id, CAST(event_time AS TIMESTAMP(3)) AS tweeted_at FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY tweet_id, author_id ORDER BY event_time DESC) AS place
            FROM tweet WHERE verb IN ('posted', 'deleted')
        ) WHERE place = 1 AND verb = 'posted'
    """,
    # A tweet belongs to the author of the first event that posts it. A tweet's events arrive in the order of their
    # offsets, because they are in one partition.
    "owners": """
        SELECT tweet_id, FIRST_VALUE(author_id) AS author_id FROM tweet WHERE verb = 'posted' GROUP BY tweet_id
    """,
    "popular": "SELECT followee_id FROM follows GROUP BY followee_id HAVING COUNT(*) > 10000",
    "shown_tweets": """
        SELECT o.tweet_id, o.author_id, t.tweeted_at FROM owners AS o
        JOIN tweets AS t ON t.tweet_id = o.tweet_id AND t.author_id = o.author_id
        WHERE NOT EXISTS (SELECT 1 FROM popular AS p WHERE p.followee_id = o.author_id)
    """,
}
_VIEWS = {
    "page_views": """
        SELECT FLOOR(event_time TO MINUTE), COALESCE(PARSE_URL(url, 'HOST'), ''), COALESCE(PARSE_URL(url, 'PATH'), ''),
            COALESCE(browser, ''), COUNT(*), SUM(`bytes`)
        FROM page_view GROUP BY FLOOR(event_time TO MINUTE), COALESCE(PARSE_URL(url, 'HOST'), ''),
            COALESCE(PARSE_URL(url, 'PATH'), ''), COALESCE(browser, '')
    """,
    "request_rates": """
        SELECT pane, ip, COUNT(*) FROM (
            SELECT TIMESTAMPADD(
                SECOND, CAST(EXTRACT(SECOND FROM event_time) - MOD(EXTRACT(SECOND FROM event_time), 10) AS INT),
                FLOOR(event_time TO MINUTE)
            ) AS pane, COALESCE(ip, '') AS ip FROM page_view
        ) GROUP BY pane, ip
    """,
    "cart": """
        SELECT l.cart_id, l.product, l.quantity, l.changed_at, c.checked_out_at
        FROM cart_last AS l LEFT JOIN checkouts AS c ON c.cart_id = l.cart_id WHERE l.quantity > 0
    """,
    # The search or a click may come first.
    "click_through": """
        SELECT search_id, MAX(asked_at), MAX(results), LISTAGG(DISTINCT click, ' ') FROM (
            SELECT event_id AS search_id, event_time AS asked_at, results, CAST(NULL AS STRING) AS click FROM `search`
            UNION ALL
            SELECT search_id, CAST(NULL AS TIMESTAMP(3)), CAST(NULL AS STRING), CAST(event_time AS STRING) || ' ' || url
            FROM `click`
        ) GROUP BY search_id
    """,
    # Flink cannot derive the key of the join's rows, so it needs a rule for rows with one key.
    "home_timeline": """
        SELECT f.follower_id, t.tweeted_at, t.tweet_id
        FROM shown_tweets AS t JOIN follows AS f ON f.followee_id = t.author_id ON CONFLICT DO DEDUPLICATE
    """,
}


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
    kafka = _properties({f"properties.{name}": value for name, value in given["kafka"].items()})
    for topic, columns in _SOURCES.items():
        environment.execute_sql(_SOURCE.format(topic=topic, columns=columns, properties=kafka))
    database = _properties(given["database"])
    for view, columns in _SINKS.items():
        environment.execute_sql(_SINK.format(view=view, columns=columns, schema="bench_flink", properties=database))
    for name, query in _STEPS.items():
        environment.execute_sql(f"CREATE TEMPORARY VIEW {name} AS {query}")
    statements = environment.create_statement_set()
    for view, query in _VIEWS.items():
        statements.add_insert_sql(f"INSERT INTO {view} {query}")
    statements.execute().wait()


if __name__ == "__main__":
    main()
