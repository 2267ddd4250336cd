"""A platform with 50 views, 200 partitions, 90 days of comparisons, half a million rows, 300 rules and their matches.

One statement makes all rows of a table, because the other builders would take minutes.
"""

from truelog.storage.database import Connection

_FILLED = """
INSERT INTO truelog.view (view, version, fingerprint, spark, made_at, reads)
    SELECT 'v' || n, 1, '', '', now() - interval '90 days', '{page_view}' FROM generate_series(1, 50) n;
INSERT INTO truelog.position SELECT 'v' || n, 1, 'page_view', p, 'id', 100000
    FROM generate_series(1, 50) n, generate_series(0, 199) p;
INSERT INTO truelog.reconciliation (view, version, positions, from_raw, row_count, missing, extra, different, repaired,
    verdict, reason, sample, run, finished_at)
    SELECT 'v' || n % 50 + 1, 1, (SELECT jsonb_build_object('page_view', jsonb_object_agg(p, 100000))
        FROM generate_series(0, 199) p), false, 1000, 0, 0, n % 100 / 99, 0,
        CASE n % 100 WHEN 99 THEN 'DIFFERENT' WHEN 50 THEN 'UNKNOWN' ELSE 'EQUAL' END, '', '[]',
        'scheduled__' || n / 50, now() - n * interval '1 minute' FROM generate_series(1, 10000) n;
INSERT INTO truelog.validation (reconciliation, success, failed, result)
    SELECT id, true, '{}', '{}' FROM truelog.reconciliation;
INSERT INTO truelog.certificate (id, view, version, reconciliation, positions, fingerprint, row_count, digest, object,
    made_at) SELECT view || '-' || id, view, 1, id, positions, '', 1000, '', '', finished_at
    FROM truelog.reconciliation WHERE verdict = 'EQUAL';
INSERT INTO truelog.recomputation (attempt, view, day, state)
    SELECT 'a' || d, 'v' || n, date_trunc('day', now()) - d * interval '1 day', 'done'
    FROM generate_series(1, 50) n, generate_series(0, 90) d;
CREATE TABLE state.v1_v1 (minute timestamptz, host text, page text, browser text, views bigint,
    UNIQUE NULLS NOT DISTINCT (minute, host, page, browser));
INSERT INTO state.v1_v1 SELECT now() - n * interval '1 second', 'h' || n % 50, '/' || n % 7, 'b', n
    FROM generate_series(1, 500000) n;
CREATE VIEW views.v1 AS SELECT * FROM state.v1_v1;
INSERT INTO truelog.lag_sample (reader, version, at, batch_at, partitions, verdicts)
    SELECT 'v' || n, 1, now() - poll * interval '10 seconds', now(), (SELECT jsonb_agg(jsonb_build_object(
        'topic', 'page_view', 'partition', p, 'position', 99000 + n, 'earliest', 0, 'end', 100000, 'seconds', n,
        'topic_id', 'id', 'blind', '')) FROM generate_series(0, 199) p),
        (SELECT jsonb_agg('{"verdict": "OK", "rule": 12, "reason": ""}'::jsonb) FROM generate_series(0, 199))
    FROM generate_series(1, 50) n, generate_series(0, 59) poll;
INSERT INTO state.matches_v2_rules SELECT topic, partition, "offset" + 10 * n, logged_at, rule || '_' || n, verb,
    replace(definition, rule, rule || '_' || n), begins FROM state.matches_v2_rules, generate_series(1, 300) n
    WHERE "offset" = 0;
INSERT INTO state.matches_v2 SELECT entity_id, entity, span_end, match_id || '_' || n, rule, rule_version, outcome,
    first_time - n * interval '1 second', last_time - n * interval '1 second', settled_after, events, shown
    FROM state.matches_v2, generate_series(1, 10000) n;
INSERT INTO state.search_hits_v2 SELECT document || '_' || n, logged_at - n * interval '1 second', search,
    search_version, event_type, event_time - n * interval '1 second', snippet
    FROM state.search_hits_v2, generate_series(1, 10000) n;
ANALYZE;
"""


def a_large_platform(connection: Connection) -> None:
    """Fill a new database that has the tables of rules and searches."""
    for statement in _FILLED.strip().split(";\n"):
        connection.execute(statement.encode())
