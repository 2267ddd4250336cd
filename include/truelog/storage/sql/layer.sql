-- Which layer answers the readers of a view: its stream, or an answer that was made from the archive. Decided by what
-- one snapshot holds and nothing else, so that merge, batch answer and comparison each move readers as they commit.
-- Every statement may run again on a database that has it already.
CREATE SCHEMA IF NOT EXISTS batch;  -- answers of the batch layer, a table like that in `state` for each view and version

CREATE TABLE IF NOT EXISTS truelog.batch_answer (
    view text, version integer, as_of timestamptz NOT NULL, made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (view, version),
    FOREIGN KEY (view, version) REFERENCES truelog.view
);
COMMENT ON TABLE truelog.batch_answer IS 'Of which views the batch layer keeps an answer, and until when it has the log';

CREATE TABLE IF NOT EXISTS truelog.batch_position (
    view text, version integer, topic text, partition integer, topic_id text NOT NULL, next_offset bigint NOT NULL,
    PRIMARY KEY (view, version, topic, partition),
    FOREIGN KEY (view, version) REFERENCES truelog.batch_answer ON DELETE CASCADE
);
COMMENT ON TABLE truelog.batch_position IS 'Up to where each answer of the batch layer has counted the log';

CREATE TABLE IF NOT EXISTS truelog.batch_refusal (
    view text PRIMARY KEY, files text NOT NULL, reason text NOT NULL, at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.batch_refusal IS 'Why a view cannot be rebuilt as long as the files of the code have this digest';

-- Found unequal and not mended, until it is found equal; an answer that could not be had changes nothing. Where archive
-- or partial is wrong (`truelog.reconcile.offset_search`), it is the rebuild that must not be shown.
CREATE OR REPLACE VIEW truelog.quarantine AS
SELECT v.view, v.version, r.id AS reconciliation, r.finished_at AS since
FROM truelog.view v CROSS JOIN LATERAL (
    SELECT * FROM truelog.reconciliation r
    WHERE (r.view, r.version) = (v.view, v.version) AND r.verdict <> 'UNKNOWN' ORDER BY r.id DESC LIMIT 1
) r
WHERE r.verdict = 'DIFFERENT' AND r.missing + r.extra + r.different > 0
    AND NOT r.causes @> '[{"cause": "missing archive file"}]' AND NOT r.causes @> '[{"cause": "wrong partial"}]';
COMMENT ON VIEW truelog.quarantine IS 'Views whose streamed rows are known to be wrong, by the comparison that found it';

-- A batch answer is kept only where it has all that readers have seen, so they stay with it until the stream has all of
-- it in turn; offsets of a topic that was deleted and made again mean other records and keep nobody.
CREATE OR REPLACE VIEW truelog.batch_layer AS
SELECT a.view, a.version, a.as_of, a.made_at FROM truelog.batch_answer a
WHERE EXISTS (
    SELECT FROM truelog.batch_position b
    WHERE (b.view, b.version) = (a.view, a.version) AND b.next_offset > 0 AND NOT EXISTS (
        SELECT FROM truelog.position p WHERE (p.view, p.version, p.topic) = (b.view, b.version, b.topic)
            AND (p.topic_id <> b.topic_id OR (p.partition = b.partition AND p.next_offset >= b.next_offset))
    )
) OR EXISTS (SELECT FROM truelog.quarantine q WHERE (q.view, q.version) = (a.view, a.version));
COMMENT ON VIEW truelog.batch_layer IS 'Views whose readers are answered from the batch layer';

CREATE OR REPLACE VIEW truelog.served_position AS
SELECT view, version, topic, partition, topic_id, next_offset
FROM truelog.batch_position JOIN truelog.batch_layer USING (view, version)
UNION ALL SELECT view, version, topic, partition, topic_id, next_offset FROM truelog.position p
WHERE NOT EXISTS (SELECT FROM truelog.batch_layer b WHERE (b.view, b.version) = (p.view, p.version));
COMMENT ON VIEW truelog.served_position IS 'Up to where the readers of each view see the log';

CREATE OR REPLACE VIEW truelog.answer AS
SELECT newest.view, newest.version, CASE WHEN b.view IS NULL THEN 'stream' ELSE 'batch' END AS layer, at.as_of,
    extract(epoch FROM now() - at.as_of)::float8 AS age,
    why.matter || CASE WHEN why.matter <> '' AND b.view IS NULL AND f.reason IS NOT NULL THEN '; no rebuild of it: ' || f.reason ELSE '' END AS reason
FROM (SELECT DISTINCT ON (view) view, version FROM truelog.view ORDER BY view, version DESC) newest
LEFT JOIN truelog.batch_layer b USING (view, version)
LEFT JOIN truelog.quarantine q USING (view, version)
LEFT JOIN truelog.standing s ON s.view = newest.view
LEFT JOIN truelog.application_status a ON a.application = s.application
LEFT JOIN truelog.batch_refusal f ON f.view = newest.view
CROSS JOIN LATERAL (SELECT max(advanced_at) AS moved_at FROM truelog.position p WHERE (p.view, p.version) = (newest.view, newest.version)) p
CROSS JOIN LATERAL (SELECT coalesce(b.as_of, CASE WHEN s.state = 'UP_TO_DATE' THEN greatest(a.batch_at, p.moved_at) ELSE p.moved_at END) AS as_of) at
CROSS JOIN LATERAL (SELECT CASE
    WHEN q.reconciliation IS NOT NULL THEN format('rows of the stream differ from the rebuild (reconciliation %s)', q.reconciliation)
    WHEN s.state = 'STALLED' THEN 'its stream is stalled'
    WHEN a.desired = 'stopped' THEN format('%s is stopped', a.application)
    WHEN NOT a.alive THEN format('%s does not run', a.application)
    WHEN b.view IS NOT NULL THEN format('%s has yet to catch up', coalesce(a.application, 'its stream'))
    ELSE '' END AS matter) why;
COMMENT ON VIEW truelog.answer IS 'Which layer answers the readers of each view, up to when it has the log, and what is the matter where anything is';
GRANT SELECT ON truelog.answer TO PUBLIC;  -- of those who may use the schema: whoever reads views
