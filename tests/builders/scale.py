"""A platform with 50 views, 200 partitions, 90 days of comparisons and half a million rows.

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
ANALYZE;
"""


def a_large_platform(connection: Connection) -> None:
    for statement in _FILLED.strip().split(";\n"):
        connection.execute(statement.encode())
