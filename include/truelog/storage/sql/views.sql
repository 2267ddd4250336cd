-- The SQL views of the kernel's tables.

CREATE OR REPLACE VIEW truelog.deployed AS
SELECT DISTINCT ON (view) view, version, made_at, reads, batch_only, removed_at, deployed_at, shown IS NOT NULL AS visible
FROM truelog.view ORDER BY view, deployed_at DESC NULLS LAST, version DESC;
COMMENT ON VIEW truelog.deployed IS 'The version of each view that readers see. It may be older than the newest version. A removed view is no longer visible';

-- A reader of the API has a slot from 0 to 99 in each view (`truelog.serving.reader_slot`), and gets the version whose slots
-- contain it. So a larger share has all readers of a smaller one.
CREATE OR REPLACE VIEW truelog.reader_version AS
SELECT d.view, d.version, coalesce(s.percent, 0) AS first_slot, 100 AS end_slot
FROM truelog.deployed d LEFT JOIN truelog.version_share s ON s.view = d.view
UNION ALL SELECT view, version, 0, percent FROM truelog.version_share;
COMMENT ON VIEW truelog.reader_version IS 'The version of each view that the API''s readers get, by the first slot and the slot behind the last one';

-- Readers can move back to this version. Its stream goes on for a time, so that it is as fresh as the deployed version.
CREATE OR REPLACE VIEW truelog.former AS
SELECT DISTINCT ON (v.view) v.view, v.version, d.deployed_at AS left_at
FROM truelog.view v JOIN truelog.deployed d ON d.view = v.view AND d.version <> v.version
WHERE v.deployed_at IS NOT NULL ORDER BY v.view, v.deployed_at DESC, v.version DESC;
COMMENT ON VIEW truelog.former IS 'The version of each view that readers saw before the deployed version, and when they left it';

-- A version that was not built yet has none of the events that readers see in its predecessor.
CREATE OR REPLACE VIEW truelog.predecessor AS
SELECT v.view, v.version, d.version AS served
FROM truelog.view v JOIN truelog.deployed d ON d.view = v.view AND d.version <> v.version
JOIN truelog.view s ON (s.view, s.version) = (d.view, d.version) AND s.deployed_at IS NOT NULL
WHERE EXISTS (SELECT FROM truelog.position p WHERE (p.view, p.version) = (d.view, d.version))
    OR EXISTS (SELECT FROM truelog.batch_position p WHERE (p.view, p.version) = (d.view, d.version));
COMMENT ON VIEW truelog.predecessor IS 'The versions that readers see only after a cut-over, and the version that they see until then';

CREATE OR REPLACE VIEW truelog.application_status AS
SELECT a.application, a.desired, a.code AS code_wanted, l.code AS code_running, l.epoch, l.pid, l.process_at, l.host,
    l.taken_at, l.batch_at, EXISTS (
        SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (classid::bigint << 32) | objid::bigint = hashtextextended(a.application, 0)
    ) AS alive,
    CASE WHEN NOT EXISTS (SELECT FROM truelog.launch g WHERE (g.application, g.wish) = (a.application, a.wish)) THEN a.wish END AS wish
FROM truelog.application a LEFT JOIN truelog.lease l USING (application);
COMMENT ON VIEW truelog.application_status IS 'The desired and the actual state of each application; alive: a session holds its lock';

-- Serving: a view's readers get either the rows of its stream or a batch answer built from the archive. The choice depends
-- only on the data in one snapshot, so each merge, batch answer and comparison takes effect for readers when it commits.

CREATE OR REPLACE VIEW truelog.view_position AS
SELECT view, version, topic, partition, topic_id, next_offset, reading FROM truelog.position
UNION ALL SELECT view, version, topic, partition, topic_id, next_offset, reading
FROM truelog.batch_position JOIN truelog.view USING (view, version) WHERE batch_only;
COMMENT ON VIEW truelog.view_position IS 'The log position of each view''s own rows: those of its stream, or of a batch-only view';

-- Views whose last conclusive comparison was DIFFERENT and was not fully repaired; UNKNOWN changes nothing. If the archive
-- or a partial is wrong (`truelog.reconcile.offset_search`), the rebuild is wrong, so the stream stays visible. The next
-- build of a batch-only view replaces all of its rows.
CREATE OR REPLACE VIEW truelog.quarantine AS
SELECT v.view, v.version, r.id AS reconciliation, r.finished_at AS since
FROM truelog.view v CROSS JOIN LATERAL (
    SELECT id, finished_at, verdict, missing, extra, different, causes FROM truelog.reconciliation r
    WHERE (r.view, r.version) = (v.view, v.version) AND r.verdict <> 'UNKNOWN' ORDER BY r.id DESC LIMIT 1
) r
WHERE r.verdict = 'DIFFERENT' AND r.missing + r.extra + r.different > 0
    AND NOT r.causes @> '[{"cause": "missing archive file"}]' AND NOT r.causes @> '[{"cause": "wrong partial"}]'
    AND NOT EXISTS (
        SELECT FROM truelog.batch_answer a
        WHERE (a.view, a.version) = (v.view, v.version) AND v.batch_only AND a.made_at > r.finished_at
    );
COMMENT ON VIEW truelog.quarantine IS 'Views whose streamed rows are known to be wrong, with the comparison that proved it';

-- A batch answer is stored only if it contains all records that readers have seen. Readers get this answer until the
-- stream contains all of its records. If a topic was deleted and created again, its old offsets do not count. The readers
-- of a batch-only view always get its batch answer.
CREATE OR REPLACE VIEW truelog.batch_layer AS
SELECT a.view, a.version, a.as_of, a.made_at FROM truelog.batch_answer a
WHERE EXISTS (
    SELECT FROM truelog.batch_position b
    WHERE (b.view, b.version) = (a.view, a.version) AND b.next_offset > 0 AND NOT EXISTS (
        SELECT FROM truelog.position p WHERE (p.view, p.version, p.topic) = (b.view, b.version, b.topic)
            AND (p.topic_id <> b.topic_id OR (p.partition = b.partition AND p.next_offset >= b.next_offset))
    )
) OR EXISTS (SELECT FROM truelog.quarantine q WHERE (q.view, q.version) = (a.view, a.version))
OR EXISTS (SELECT FROM truelog.view v WHERE (v.view, v.version) = (a.view, a.version) AND v.batch_only);
COMMENT ON VIEW truelog.batch_layer IS 'Views whose readers get the batch answer';

CREATE OR REPLACE VIEW truelog.batch_only AS
SELECT d.view, d.version, a.made_at AS built_at, extract(epoch FROM now() - coalesce(a.made_at, d.made_at))::float8 AS age
FROM truelog.deployed d LEFT JOIN truelog.batch_answer a USING (view, version) WHERE d.batch_only;
COMMENT ON VIEW truelog.batch_only IS 'The deployed views that no stream runs, and the age of their last build; of a view that was never built, its own age';

CREATE OR REPLACE VIEW truelog.served_position AS
SELECT view, version, topic, partition, topic_id, next_offset, reading
FROM truelog.batch_position JOIN truelog.batch_layer USING (view, version)
UNION ALL SELECT view, version, topic, partition, topic_id, next_offset, reading FROM truelog.position p
WHERE NOT EXISTS (SELECT FROM truelog.batch_layer b WHERE (b.view, b.version) = (p.view, p.version));
COMMENT ON VIEW truelog.served_position IS 'The log position that each view''s readers see';

-- The poller records the age of each reader's first unread record, by the brokers' clock. A reader has all records that
-- reached the log before its oldest unread record, or before the poll if it had read everything.
CREATE OR REPLACE FUNCTION truelog.complete_until(a_reader text, a_version integer, topics text[]) RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog AS $$
    SELECT CASE WHEN version = a_version THEN at - make_interval(secs => (
        SELECT max((p ->> 'seconds')::float8) FROM jsonb_array_elements(partitions) AS p WHERE topics IS NULL OR p ->> 'topic' = ANY(topics)
    )) END FROM truelog.lag_sample
    WHERE reader = a_reader AND NOT partitions @? '$[*] ? (@.blind != "")' ORDER BY at DESC LIMIT 1
$$;

-- After a restore from a backup, rows may show people who were forgotten since (docs/decisions/116-restored-erasures.md).
CREATE OR REPLACE VIEW truelog.held AS
SELECT v.view, v.version, CASE
    WHEN r.unread THEN 'this database was restored, and lacks erasures of the log: run `truelog archive adopt`'
    ELSE 'this database was restored, and an erasure is not performed again yet: run `truelog erasures adopt`' END AS reason,
    r.unread OR EXISTS (  -- whose step VIEWS is not finished: the step COPIES needs relay and notifier
        SELECT FROM truelog.erasure e JOIN truelog.erasure_end x ON x.erasure = e.id
        WHERE e.adopted AND e.step < 8 AND x.topic = ANY(v.reads)
    ) AS outputs_too
FROM truelog.view v CROSS JOIN (
    SELECT EXISTS (
        SELECT FROM truelog.erasure_reading
        WHERE lacking > 0 OR database <> (SELECT oid FROM pg_database WHERE datname = current_database())
    ) AS unread
) r
WHERE r.unread OR EXISTS (  -- whose step COPIES is not finished
    SELECT FROM truelog.erasure e JOIN truelog.erasure_end x ON x.erasure = e.id
    WHERE e.adopted AND e.step < 9 AND x.topic = ANY(v.reads)
);
COMMENT ON VIEW truelog.held IS 'The versions of views that the API holds back after a restore, because erasures since the backup are missing. Relay and notifier hold back only those with `outputs_too`';
GRANT SELECT ON truelog.held TO PUBLIC;  -- as for truelog.answer

-- Whatever readers see of a view calls this with the reason while the view is held back. The state is known to
-- `truelog.erasure.hold`.
CREATE OR REPLACE FUNCTION truelog.refuse(reason text) RETURNS boolean LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'TL001', MESSAGE = 'the rows are held back: ' || reason;
END
$$;
COMMENT ON FUNCTION truelog.refuse IS 'Fails with the reason for which rows are held back, so that no query shows a part of them';

CREATE OR REPLACE VIEW truelog.answer AS
SELECT d.view, d.version, served.layer, at.as_of, extract(epoch FROM now() - at.as_of)::float8 AS age,
    why.matter || CASE WHEN why.matter <> '' AND (b.view IS NULL OR d.batch_only) AND f.reason IS NOT NULL
        THEN '; it cannot be rebuilt: ' || f.reason ELSE '' END AS reason, (
        SELECT r.finished_at FROM truelog.reconciliation r
        WHERE (r.view, r.version) = (d.view, d.version) AND r.verdict = 'EQUAL' ORDER BY r.id DESC LIMIT 1
    ) AS proved_at
FROM truelog.deployed d
LEFT JOIN truelog.batch_layer b USING (view, version)
LEFT JOIN truelog.quarantine q USING (view, version)
LEFT JOIN LATERAL (  -- of this version, or of the view if no application runs this version
    SELECT application, state FROM truelog.standing s WHERE s.view = d.view AND (s.version = d.version OR s.declared)
    ORDER BY s.version IS NOT DISTINCT FROM d.version DESC LIMIT 1
) s ON true
LEFT JOIN truelog.application_status a ON a.application = s.application
LEFT JOIN truelog.batch_refusal f ON f.view = d.view
LEFT JOIN truelog.held h ON (h.view, h.version) = (d.view, d.version)
CROSS JOIN LATERAL (SELECT CASE WHEN b.view IS NULL AND NOT d.batch_only THEN 'stream' ELSE 'batch' END AS layer) served
CROSS JOIN LATERAL (SELECT CASE WHEN served.layer = 'stream' THEN truelog.complete_until(d.view, d.version, d.reads) ELSE b.as_of END AS as_of) at
CROSS JOIN LATERAL (SELECT CASE
    WHEN d.removed_at IS NOT NULL THEN format('removed: its file is gone since %s UTC', to_char(d.removed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'))
    WHEN h.reason IS NOT NULL THEN h.reason
    WHEN q.reconciliation IS NOT NULL THEN format('rows of the %s differ from the rebuild (reconciliation %s)',
        CASE WHEN d.batch_only THEN 'batch layer' ELSE 'stream' END, q.reconciliation)
    WHEN d.batch_only AND b.view IS NULL THEN 'batch-only and not built yet'
    WHEN d.batch_only THEN format('batch-only, built at %s UTC', to_char(b.made_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'))
    WHEN s.state = 'STALLED' THEN 'its stream is stalled'
    WHEN a.desired = 'stopped' THEN format('%s is stopped', a.application)
    WHEN NOT a.alive THEN format('%s is not running', a.application)
    WHEN b.view IS NOT NULL THEN format('%s is catching up', coalesce(a.application, 'its stream'))
    WHEN EXISTS (  -- whose step VIEWS is not finished (docs/decisions/087-erasure.md)
        SELECT FROM truelog.erasure e JOIN truelog.erasure_end x ON x.erasure = e.id WHERE e.step < 8 AND x.topic = ANY(d.reads)
    ) THEN 'an erasure is unfinished: rows may show people who are to be forgotten'
    ELSE '' END AS matter) why;
COMMENT ON VIEW truelog.answer IS 'The layer that serves each view''s readers, the time up to which the layer covers the log, and the reason if the view has a problem';
COMMENT ON COLUMN truelog.answer.view IS 'the view''s name';
COMMENT ON COLUMN truelog.answer.version IS 'the version that readers see';
COMMENT ON COLUMN truelog.answer.layer IS '`stream`, or `batch` if readers get a rebuild from the archive';
COMMENT ON COLUMN truelog.answer.as_of IS 'the rows contain every record that reached the log before this time; NULL if it is not known yet';
COMMENT ON COLUMN truelog.answer.age IS 'the seconds since `as_of`';
COMMENT ON COLUMN truelog.answer.reason IS 'what is wrong with the view, or an empty text';
COMMENT ON COLUMN truelog.answer.proved_at IS 'when a comparison last found the rows equal to a rebuild from the archive; NULL if none has yet';
GRANT SELECT ON truelog.answer TO PUBLIC;  -- only roles that may use the `truelog` schema can reach it

CREATE OR REPLACE VIEW truelog.clock AS
SELECT view, version, CASE WHEN b.view IS NULL THEN t.clock ELSE a.clock END AS time
FROM truelog.view v LEFT JOIN truelog.merge_tally t USING (view, version)
LEFT JOIN truelog.batch_layer b USING (view, version) LEFT JOIN truelog.batch_answer a USING (view, version);
COMMENT ON VIEW truelog.clock IS 'The log''s clock at the positions of the rows that readers see; NULL if the view does not depend on it';

-- The canonical form of an IP address, as `truelog.limits.rate.canonical_address` writes it. PostgreSQL writes the last part
-- of some IPv6 addresses as an IPv4 address, and keeps an IPv4 address that is written as an IPv6 address.
CREATE OR REPLACE FUNCTION truelog.canonical_address(address text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN a << '::ffff:0:0/96' THEN host('0.0.0.0'::inet + (a - '::ffff:0:0'::inet))
        WHEN a << '::/96' AND a - '::'::inet > 65535
            THEN format('::%s:%s', to_hex((a - '::'::inet) >> 16), to_hex((a - '::'::inet) & 65535))
        ELSE host(a) END
    FROM (SELECT host(address::inet)::inet AS a) AS given
$$;

-- Whether an address may make another request, by the rules of `truelog.limits.rate` (docs/rate-limits.md). The body is a text,
-- because the streams create the two views later.
CREATE OR REPLACE FUNCTION truelog.limit_check(
    address text, at timestamptz DEFAULT now(), OUT allowed boolean, OUT why text, OUT reason text, OUT count bigint,
    OUT max_requests bigint, OUT window_seconds bigint, OUT resets_at timestamptz
) LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    asked text := truelog.canonical_address(address);
    in_window interval;
    blocked boolean;
    blocked_until timestamptz;
BEGIN
    SELECT p.max_requests, p.window_seconds INTO max_requests, window_seconds FROM views.rate_limits p
    WHERE p.address IN (asked, 'all') AND p.max_requests IS NOT NULL ORDER BY p.address = asked DESC LIMIT 1;
    max_requests := coalesce(max_requests, 100);
    window_seconds := coalesce(window_seconds, 3600);
    in_window := make_interval(secs => window_seconds + 10);
    SELECT b.blocked_until IS NULL OR at < b.blocked_until, b.blocked_until, b.reason INTO blocked, blocked_until, reason
    FROM views.rate_limits b WHERE b.address = asked AND b.blocked_at IS NOT NULL;
    SELECT coalesce(sum(p.requests), 0), coalesce(max(p.pane) FILTER (WHERE p.newer >= limit_check.max_requests) + in_window, at)
    INTO count, resets_at FROM (
        SELECT r.pane, r.requests, sum(r.requests) OVER (ORDER BY r.pane DESC) AS newer
        FROM views.request_rates r WHERE r.ip = asked AND r.pane > at - in_window AND r.pane <= at
    ) p;
    allowed := NOT coalesce(blocked, false) AND count < max_requests;
    why := CASE WHEN blocked THEN 'block' ELSE 'policy' END;
    IF blocked THEN resets_at := CASE WHEN blocked_until IS NOT NULL THEN greatest(blocked_until, resets_at) END; END IF;
END
$$;
COMMENT ON FUNCTION truelog.limit_check IS 'Whether an address may make another request, and why. The answer is advisory: it is as old as the views';

-- For the collector, whose role may read no view: what `truelog.limits.rate_answer` reads about some addresses.
CREATE OR REPLACE FUNCTION truelog.limits_of(addresses text[]) RETURNS TABLE (
    address text, max_requests bigint, window_seconds bigint, blocked boolean, blocked_until timestamptz, reason text
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    RETURN QUERY SELECT l.address, l.max_requests::bigint, l.window_seconds::bigint, l.blocked_at IS NOT NULL, l.blocked_until, l.reason
    FROM views.rate_limits l WHERE l.address = ANY(addresses);
END
$$;
CREATE OR REPLACE FUNCTION truelog.requests_of(addresses text[], since timestamptz[], until timestamptz) RETURNS TABLE (
    ip text, pane timestamptz, requests bigint
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    RETURN QUERY SELECT found.ip, found.pane, found.requests FROM unnest(addresses, since) AS asked(one, after) CROSS JOIN LATERAL (
        SELECT r.ip, r.pane, r.requests::bigint FROM views.request_rates r
        WHERE r.ip = asked.one AND r.pane > asked.after AND r.pane <= until
    ) AS found ORDER BY found.ip, found.pane;
END
$$;
REVOKE EXECUTE ON FUNCTION truelog.limits_of, truelog.requests_of FROM PUBLIC;

-- Notes what a statement changed in a followed table (`truelog.tables.output.changes`). The argument is the table of notes.
CREATE OR REPLACE FUNCTION truelog.note_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN EXECUTE format('INSERT INTO stage.%I SELECT *, -1 FROM removed', TG_ARGV[0]); END IF;
    IF TG_OP <> 'DELETE' THEN EXECUTE format('INSERT INTO stage.%I SELECT *, 1 FROM added', TG_ARGV[0]); END IF;
    RETURN NULL;
END
$$;
-- Comments columns of a relation (`truelog.tables.shown.meanings`). A given column must exist, and a known one may.
CREATE OR REPLACE FUNCTION truelog.describe(relation regclass, known jsonb, given jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    each record;
BEGIN
    FOR each IN SELECT key, value FROM jsonb_each_text(known || given) WHERE given ? key OR EXISTS (
        SELECT FROM pg_attribute WHERE attrelid = relation AND attname = key AND attnum > 0
    ) LOOP
        EXECUTE format('COMMENT ON COLUMN %s.%I IS %L', relation, each.key, each.value);
    END LOOP;
END
$$;

-- What readers see, without side tables and versions, for people and their tools. `truelog up` has created it, with rights.
CREATE SCHEMA IF NOT EXISTS presented;

-- Shows a relation of `views` in the schema `presented`, with its comments. It goes with the relation.
CREATE OR REPLACE FUNCTION truelog.present(relation regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    target text := format('presented.%I', (SELECT relname FROM pg_class WHERE oid = relation));
    each record;
BEGIN
    EXECUTE format('CREATE VIEW %s AS SELECT * FROM %s', target, relation);
    EXECUTE format('COMMENT ON VIEW %s IS %L', target, obj_description(relation, 'pg_class'));
    FOR each IN SELECT attname, col_description(relation, attnum) AS meaning FROM pg_attribute
        WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped
    LOOP
        EXECUTE format('COMMENT ON COLUMN %s.%I IS %L', target, each.attname, each.meaning);
    END LOOP;
END
$$;

-- For the API: what the rows that readers see were made of. Rows with equal states are equal. A repair changes rows at
-- the same positions, and so does another reading of a topic, and another build of a batch answer.
CREATE OR REPLACE VIEW truelog.served_version AS
SELECT v.view, v.version, v.reads, served.layer, c.time AS clock, p.offsets, p.ids,
    md5(concat_ws(' ', v.version, served.layer, p.offsets, p.ids, p.readings, v.repairs, b.made_at)) AS state
FROM truelog.view v
LEFT JOIN truelog.batch_layer b USING (view, version) LEFT JOIN truelog.clock c USING (view, version)
CROSS JOIN LATERAL (SELECT CASE WHEN b.view IS NULL AND NOT v.batch_only THEN 'stream' ELSE 'batch' END AS layer) served
CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_object_agg(topic, t.offsets), '{}') AS offsets, coalesce(jsonb_object_agg(topic, t.id), '{}') AS ids,
        sum(t.readings) AS readings
    FROM (
        SELECT topic, jsonb_object_agg(partition, next_offset) AS offsets, max(topic_id) AS id, sum(reading) AS readings
        FROM truelog.served_position s WHERE (s.view, s.version) = (v.view, v.version) GROUP BY topic
    ) t
) p;
COMMENT ON VIEW truelog.served_version IS 'The layer, the positions and the state of the rows of each version of each view';

CREATE OR REPLACE VIEW truelog.served AS
SELECT s.view, s.version, s.reads, s.layer, s.clock, s.offsets, s.ids, s.state
FROM truelog.deployed JOIN truelog.served_version s USING (view, version);
COMMENT ON VIEW truelog.served IS 'The layer, the positions and the state of the rows that each view''s readers see';
GRANT SELECT ON truelog.served, truelog.served_version, truelog.served_position, truelog.deployed TO PUBLIC;  -- as for truelog.answer

CREATE OR REPLACE VIEW truelog.version_status AS
SELECT v.view, v.version, v.version = d.version AND v.deployed_at IS NOT NULL AND v.shown IS NOT NULL AS serving, coalesce(s.declared, false) AS declared,
    f.left_at, v.held, v.batch_only, coalesce(s.state, '') AS state, coalesce(s.reason, '') AS reason,
    EXISTS (SELECT FROM truelog.view_position p WHERE (p.view, p.version) = (v.view, v.version)) AS built,
    lag.behind, greatest(c.reltuples, 0)::bigint AS rows, coalesce(r.verdict, '') AS verdict,
    extract(epoch FROM now() - r.finished_at)::float8 AS verdict_age, v.made_at, v.deployed_at, coalesce(h.percent, 0) AS share
FROM truelog.view v JOIN truelog.deployed d ON d.view = v.view
LEFT JOIN truelog.version_share h ON (h.view, h.version) = (v.view, v.version)
LEFT JOIN truelog.standing s ON (s.view, s.version) = (v.view, v.version)
LEFT JOIN truelog.former f ON (f.view, f.version) = (v.view, v.version)
LEFT JOIN pg_class c ON c.relname = v.view || '_v' || v.version
    AND c.relnamespace = CASE WHEN v.batch_only THEN 'batch' ELSE 'state' END::regnamespace
LEFT JOIN LATERAL (
    SELECT verdict, finished_at FROM truelog.reconciliation r
    WHERE (r.view, r.version) = (v.view, v.version) AND verdict <> 'UNKNOWN'
        AND r.positions <> '{}'  -- before a version is built, it equals a rebuild of nothing
    ORDER BY id DESC LIMIT 1
) r ON true
CROSS JOIN LATERAL (  -- the records below the rows that readers see, and not below those of this version
    SELECT coalesce(sum(greatest(0, a.next_offset - coalesce(b.next_offset, 0))), 0)::bigint AS behind
    FROM truelog.served_position a LEFT JOIN truelog.served_position b
        ON (b.view, b.topic, b.partition, b.topic_id) = (a.view, a.topic, a.partition, a.topic_id) AND b.version = v.version
    WHERE (a.view, a.version) = (d.view, d.version) AND a.topic = ANY(v.reads) AND NOT EXISTS (  -- created again since
        SELECT FROM truelog.served_position c
        WHERE (c.view, c.version, c.topic) = (a.view, v.version, a.topic) AND c.topic_id <> a.topic_id
    )
) lag;
COMMENT ON VIEW truelog.version_status IS 'Each version of each view: who sees it, whether it runs, how far it is behind the rows that readers see, and its last comparison';

-- Both versions run beside each other. If the shared one has all records that other readers see, it is as fresh as theirs.
CREATE OR REPLACE VIEW truelog.shared_answer AS
SELECT h.view, h.version, served.layer, CASE WHEN t.behind = 0 AND v.reads <@ d.reads THEN n.as_of END AS as_of, CASE
    WHEN d.removed_at IS NOT NULL THEN n.reason
    WHEN w.reason IS NOT NULL THEN w.reason
    WHEN q.reconciliation IS NOT NULL THEN format('rows of version %s differ from the rebuild (reconciliation %s)', h.version, q.reconciliation)
    WHEN t.state = 'STALLED' THEN format('the stream of version %s is stalled', h.version)
    WHEN s.application IS NULL THEN format('no application runs version %s', h.version)
    WHEN a.desired = 'stopped' THEN format('%s is stopped', a.application)
    WHEN NOT a.alive THEN format('%s is not running', a.application)
    WHEN t.behind > 0 THEN format('version %s lacks %s records that other readers see', h.version, t.behind)
    WHEN EXISTS (
        SELECT FROM truelog.erasure e JOIN truelog.erasure_end x ON x.erasure = e.id WHERE e.step < 8 AND x.topic = ANY(v.reads)
    ) THEN 'an erasure is unfinished: rows may show people who are to be forgotten'
    ELSE '' END AS reason
FROM truelog.version_share h JOIN truelog.version_status t USING (view, version) JOIN truelog.view v USING (view, version)
JOIN truelog.deployed d ON d.view = h.view JOIN truelog.answer n ON n.view = h.view
LEFT JOIN truelog.batch_layer b ON (b.view, b.version) = (h.view, h.version)
LEFT JOIN truelog.quarantine q ON (q.view, q.version) = (h.view, h.version)
LEFT JOIN truelog.held w ON (w.view, w.version) = (h.view, h.version)
LEFT JOIN truelog.standing s ON (s.view, s.version) = (h.view, h.version)
LEFT JOIN truelog.application_status a ON a.application = s.application
CROSS JOIN LATERAL (SELECT CASE WHEN b.view IS NULL THEN 'stream' ELSE 'batch' END AS layer) served;
COMMENT ON VIEW truelog.shared_answer IS 'What `truelog.answer` says, of the versions that a share of the API''s readers gets';
GRANT SELECT ON truelog.reader_version, truelog.shared_answer TO PUBLIC;  -- as for truelog.answer

-- For subscribers of changes: how far each output is, and which rows each transaction has changed.
CREATE OR REPLACE VIEW truelog.published_place AS
SELECT o.view, o.version, o.number, coalesce(s.id, o.beginning) AS identity, o.beginning, o.first, coalesce((
        SELECT min(f.last) FROM truelog.output_step f WHERE (f.view, f.version) = (o.view, o.version)
    ), o.number) AS oldest
FROM truelog.output o LEFT JOIN truelog.output_step s ON (s.view, s.version, s.last) = (o.view, o.version, o.number)
WHERE o.beginning IS NOT NULL;
COMMENT ON VIEW truelog.published_place IS 'The number of the last changed row of each output, with the id of its transaction, or of the beginning before the first one, and the number of the oldest transaction that is kept';

-- No condition of a query sees a row before the view has refused it. The owner, who may read the table, is not refused: the
-- notifier takes in the changes of an adopted erasure before its step COPIES is finished.
CREATE OR REPLACE VIEW truelog.published_change WITH (security_barrier) AS
SELECT o.view, o.version, o.number, o.key, o.value, s.last, s.id, s.positions, s.made_at
FROM truelog.outbox o JOIN truelog.output_step s ON (s.view, s.version, s.last) = (o.view, o.version, o.step)
LEFT JOIN truelog.held h ON (h.view, h.version) = (o.view, o.version) AND NOT has_table_privilege('truelog.outbox', 'SELECT')
WHERE coalesce(truelog.refuse(h.reason), true);
COMMENT ON VIEW truelog.published_change IS 'The changed rows of published views, with the transaction of each';

CREATE OR REPLACE VIEW truelog.published_trace AS
SELECT view, version, last, traceparent FROM truelog.output_step WHERE traceparent IS NOT NULL;
COMMENT ON VIEW truelog.published_trace IS 'The span of the merge of each sampled transaction of a published view';
-- They have rows, so `truelog up` grants them to single roles. An earlier release granted them to all.
REVOKE SELECT ON truelog.published_place, truelog.published_change, truelog.published_trace FROM PUBLIC;
