-- What `migrate` executed at the last commit before the numbered migrations. Never change it.
-- The kernel's tables in PostgreSQL. Every statement is idempotent.
CREATE SCHEMA IF NOT EXISTS truelog;  -- the kernel's own tables
CREATE SCHEMA IF NOT EXISTS state;    -- one table per view and version, in a form that can be merged
CREATE SCHEMA IF NOT EXISTS stage;    -- rows that executors have loaded for a merge
CREATE SCHEMA IF NOT EXISTS recon;    -- copies that a comparison uses
CREATE SCHEMA IF NOT EXISTS views;    -- what readers see
CREATE SCHEMA IF NOT EXISTS iceberg;  -- the archive's catalog

-- PyIceberg and Spark share these tables and would create them, but Spark's role may not create tables.
CREATE TABLE IF NOT EXISTS iceberg.iceberg_tables (
    catalog_name varchar(255), table_namespace varchar(255), table_name varchar(255), metadata_location varchar(1000),
    previous_metadata_location varchar(1000), iceberg_type varchar(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE TABLE IF NOT EXISTS iceberg.iceberg_namespace_properties (
    catalog_name varchar(255), namespace varchar(255), property_key varchar(255), property_value varchar(1000) NOT NULL,
    PRIMARY KEY (catalog_name, namespace, property_key)
);

CREATE TABLE IF NOT EXISTS truelog.view (
    view text, version integer, fingerprint text NOT NULL, spark text NOT NULL, made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (view, version)
);
ALTER TABLE truelog.view ADD COLUMN IF NOT EXISTS shown text;  -- hash of the statements that define the relations that readers see
ALTER TABLE truelog.view ADD COLUMN IF NOT EXISTS reads text[];  -- the view's topics, known before its first merge
ALTER TABLE truelog.view ADD COLUMN IF NOT EXISTS deployed_at timestamptz;  -- when an application last began to run this version
-- Formula 2 of the fingerprint. `fingerprint` has formula 1, which release 0.1 reads. NULL if only 0.1 has checked the table.
ALTER TABLE truelog.view ADD COLUMN IF NOT EXISTS fingerprint_2 text;
ALTER TABLE truelog.view ADD COLUMN IF NOT EXISTS sides text[] NOT NULL DEFAULT '{}';  -- the names of the view's side tables
ALTER TABLE truelog.view ADD COLUMN IF NOT EXISTS repairs bigint NOT NULL DEFAULT 0;  -- a merge that has read rows before a repair is refused
ALTER TABLE truelog.view ADD COLUMN IF NOT EXISTS batch_only boolean NOT NULL DEFAULT false;  -- no stream runs this version
COMMENT ON TABLE truelog.view IS 'The code that made each view''s table. A merge locks the view''s row';

CREATE OR REPLACE VIEW truelog.deployed AS
SELECT DISTINCT ON (view) view, version, made_at, reads, batch_only FROM truelog.view
ORDER BY view, deployed_at DESC NULLS LAST, version DESC;
COMMENT ON VIEW truelog.deployed IS 'The version of each view that its application runs, or that was built, which readers see. It may be older than the newest version';

CREATE TABLE IF NOT EXISTS truelog.position (
    view text, version integer, topic text, partition integer, topic_id text NOT NULL, next_offset bigint NOT NULL,
    PRIMARY KEY (view, version, topic, partition),
    FOREIGN KEY (view, version) REFERENCES truelog.view
);
ALTER TABLE truelog.position ADD COLUMN IF NOT EXISTS advanced_at timestamptz NOT NULL DEFAULT now();
COMMENT ON TABLE truelog.position IS 'The log position up to which each view has merged';

CREATE TABLE IF NOT EXISTS truelog.event_type (event text PRIMARY KEY, settings jsonb NOT NULL);
COMMENT ON TABLE truelog.event_type IS 'The event types, with the settings of their topics and their expected quality';

CREATE TABLE IF NOT EXISTS truelog.event_version (
    event text REFERENCES truelog.event_type, version integer, declaration jsonb NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event, version)
);
COMMENT ON TABLE truelog.event_version IS 'Each declaration of an event type that has been in force. Never changed or deleted';

CREATE TABLE IF NOT EXISTS truelog.event_cut (
    id bigint GENERATED ALWAYS AS IDENTITY, event text, topic_id text, reading integer, version integer,
    first_offsets jsonb NOT NULL, made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event, topic_id, reading, version),
    FOREIGN KEY (event, version) REFERENCES truelog.event_version
);
COMMENT ON TABLE truelog.event_cut IS 'The first offset of each partition that a version judges, by reading of the topic''s history';

-- The reading under which the view counted the records below the position.
ALTER TABLE truelog.position ADD COLUMN IF NOT EXISTS reading integer NOT NULL DEFAULT 0;

CREATE TABLE IF NOT EXISTS truelog.exclusion (
    view text, version integer, topic text, partition integer, "offset" bigint, error text NOT NULL,
    noticed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (view, version, topic, partition, "offset")
);
COMMENT ON TABLE truelog.exclusion IS 'Records on which a view''s transform failed. Both stream and rebuild skip them';

CREATE TABLE IF NOT EXISTS truelog.oversized_group (
    view text, version integer, "group" jsonb, noticed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (view, version, "group")
);
COMMENT ON TABLE truelog.oversized_group IS 'Groups with more inputs than their view allows, noticed by a merge. They have no rows';

CREATE TABLE IF NOT EXISTS truelog.tick (
    topic_id text, "offset" bigint, time timestamptz NOT NULL, ends jsonb NOT NULL,
    PRIMARY KEY (topic_id, "offset")
);
COMMENT ON TABLE truelog.tick IS 'Ticks that a view with `keep` may still need to determine its clock';
-- Releases before 0.2 stored a tick without checking its end offsets.
DELETE FROM truelog.tick WHERE jsonb_typeof(ends) <> 'object' OR ends @? 'strict $.* ? (@.type() <> "object")'
    OR ends @? 'lax $.*.* ? (@.type() <> "number" || @ < 0 || @ > 9223372036854775807 || @.floor() <> @)';

CREATE TABLE IF NOT EXISTS truelog.lease (
    application text PRIMARY KEY, epoch bigint NOT NULL, host text NOT NULL, pid integer NOT NULL,
    taken_at timestamptz NOT NULL DEFAULT now(), batch_at timestamptz
);
COMMENT ON TABLE truelog.lease IS 'The process that runs each application. A higher epoch fences off all lower epochs';

CREATE TABLE IF NOT EXISTS truelog.log_day (
    topic text, partition integer, topic_id text, day bigint, first_offset bigint NOT NULL,
    PRIMARY KEY (topic_id, partition, day)
);
COMMENT ON TABLE truelog.log_day IS 'The first offset of each log day in each partition: recorded once, never changed';

CREATE TABLE IF NOT EXISTS truelog.reconciliation (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, view text NOT NULL, version integer NOT NULL,
    positions jsonb NOT NULL, from_raw boolean NOT NULL, row_count bigint NOT NULL, missing bigint NOT NULL,
    extra bigint NOT NULL, different bigint NOT NULL, repaired bigint NOT NULL, verdict text NOT NULL, reason text NOT NULL, sample jsonb NOT NULL,
    finished_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.reconciliation IS 'The result of each comparison of a streamed view with its rebuild';

CREATE TABLE IF NOT EXISTS truelog.proof (
    view text, version integer, day timestamptz, proved_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (view, version, day)
);
COMMENT ON TABLE truelog.proof IS 'When each partial was last compared with the raw bytes of its day';

CREATE TABLE IF NOT EXISTS truelog.base (
    view text, version integer, certificate text NOT NULL, snapshot bigint NOT NULL, slices jsonb NOT NULL,
    begun_at timestamptz NOT NULL, proved_at timestamptz, PRIMARY KEY (view, version)
);
COMMENT ON TABLE truelog.base IS 'The rows that the newest incremental comparison begins from: their certificate, and the hash of each slice';

CREATE TABLE IF NOT EXISTS truelog.recomputation (
    attempt text, view text, day timestamptz, run text, state text NOT NULL DEFAULT 'waiting', keys bigint,
    changed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (attempt, view, day)
);
CREATE INDEX IF NOT EXISTS recomputation_partial ON truelog.recomputation (view, day);
COMMENT ON TABLE truelog.recomputation IS 'How far each recompute is, by view and log day: waiting, running, done or failed';

CREATE TABLE IF NOT EXISTS truelog.repair (
    view text NOT NULL, version integer NOT NULL, positions jsonb NOT NULL, key jsonb NOT NULL, before jsonb, after jsonb,
    repaired_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE truelog.repair ADD COLUMN IF NOT EXISTS side text NOT NULL DEFAULT '';  -- the side table; '' for the view's own
CREATE INDEX IF NOT EXISTS repair_view ON truelog.repair (view, version, repaired_at);
COMMENT ON TABLE truelog.repair IS 'Each row that a repair changed, with its values before and after the repair';

CREATE TABLE IF NOT EXISTS truelog.api_key (
    name text PRIMARY KEY, role text NOT NULL CHECK (role IN ('producer', 'reader', 'admin')), sha256 bytea NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(), revoked_at timestamptz
);
COMMENT ON TABLE truelog.api_key IS 'The API keys and their roles. Only the hash of a key is stored';

CREATE TABLE IF NOT EXISTS truelog.replay (
    topic_id text, partition integer, "offset" bigint, target text NOT NULL, "begin" text NOT NULL, doer text NOT NULL,
    reserved_at timestamptz NOT NULL DEFAULT now(), sent_partition integer, sent_offset bigint, sent_at timestamptz,
    PRIMARY KEY (topic_id, partition, "offset")
);
CREATE INDEX IF NOT EXISTS replay_unconfirmed ON truelog.replay (target) WHERE sent_offset IS NULL;
COMMENT ON TABLE truelog.replay IS 'Each dead letter that was sent again: reserved before it is sent, confirmed with its place in the target topic. Kept forever, as dead letters are';

CREATE TABLE IF NOT EXISTS truelog.application (
    application text PRIMARY KEY, desired text NOT NULL DEFAULT 'running' CHECK (desired IN ('running', 'stopped')),
    code text, digest text
);
COMMENT ON TABLE truelog.application IS 'The desired state and code of each application. `code` was derived from files with the hash `digest`';

-- The code that the lease holder is running, and the start time of its process, because another process may reuse the pid.
ALTER TABLE truelog.lease ADD COLUMN IF NOT EXISTS code text, ADD COLUMN IF NOT EXISTS process_at double precision;
-- A random id of the holder, because a database that was restored from a backup issues the same epochs again.
ALTER TABLE truelog.lease ADD COLUMN IF NOT EXISTS incarnation uuid;
-- The unique index makes the holder a key: FOR KEY SHARE in a merge blocks a new holder, but not the end of a batch.
CREATE UNIQUE INDEX IF NOT EXISTS lease_holder ON truelog.lease (application, epoch, incarnation);

CREATE TABLE IF NOT EXISTS truelog.launch (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, application text NOT NULL, reason text NOT NULL, wish text,
    launched_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS launch_application ON truelog.launch (application, launched_at);
COMMENT ON TABLE truelog.launch IS 'Each start of an application: its reason, and the restart request that it fulfils';

-- The number of deleted launches: a metric counts all launches since the beginning.
ALTER TABLE truelog.application ADD COLUMN IF NOT EXISTS old_launches bigint NOT NULL DEFAULT 0;

-- A request to restart the application, fulfilled by the launch that contains the same value.
ALTER TABLE truelog.application ADD COLUMN IF NOT EXISTS wish text;

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

CREATE TABLE IF NOT EXISTS truelog.standing (
    view text PRIMARY KEY, application text NOT NULL, version integer, state text NOT NULL CHECK (state IN ('UP_TO_DATE', 'STALLED')),
    reason text NOT NULL, since timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.standing IS 'Whether each view is up to date with the log or stalled, and why; written by the view''s application';

-- Release 0.1 had other names for the states. A 0.1 application may still write those names while its successor starts.
ALTER TABLE truelog.standing DROP CONSTRAINT IF EXISTS standing_state_check;
UPDATE truelog.standing SET state = CASE state WHEN 'FOLLOWING' THEN 'UP_TO_DATE' ELSE 'STALLED' END WHERE state IN ('FOLLOWING', 'STANDING');
ALTER TABLE truelog.standing ADD CONSTRAINT standing_state_check CHECK (state IN ('UP_TO_DATE', 'STALLED'));
CREATE OR REPLACE FUNCTION truelog.rename_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.state := CASE NEW.state WHEN 'FOLLOWING' THEN 'UP_TO_DATE' WHEN 'STANDING' THEN 'STALLED' ELSE NEW.state END;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER rename_state BEFORE INSERT OR UPDATE ON truelog.standing
FOR EACH ROW EXECUTE FUNCTION truelog.rename_state();

-- The run of the `reconcile` DAG that requested the comparison; NULL if a user requested it on the command line.
ALTER TABLE truelog.reconciliation ADD COLUMN IF NOT EXISTS run text;
CREATE INDEX IF NOT EXISTS reconciliation_view ON truelog.reconciliation (view, version, id);
CREATE INDEX IF NOT EXISTS reconciliation_newest ON truelog.reconciliation (view, id);
CREATE INDEX IF NOT EXISTS reconciliation_run ON truelog.reconciliation (run);

CREATE TABLE IF NOT EXISTS truelog.validation (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, reconciliation bigint NOT NULL REFERENCES truelog.reconciliation,
    success boolean NOT NULL, failed text[] NOT NULL, result jsonb NOT NULL, finished_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS validation_reconciliation ON truelog.validation (reconciliation);
COMMENT ON TABLE truelog.validation IS 'Great Expectations results: the failed expectations, and the full result';

CREATE TABLE IF NOT EXISTS truelog.figure (
    event text, day timestamptz, name text, value double precision, usual double precision, least double precision,
    most double precision, unjudged text NOT NULL, measured_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event, day, name)
);
COMMENT ON TABLE truelog.figure IS 'Quality metrics of each log day of each event type with their bounds; unjudged: why a metric was not checked';

-- A validation checks either a comparison or a log day of an event type. success is NULL if no metric could be checked.
ALTER TABLE truelog.validation ALTER COLUMN reconciliation DROP NOT NULL, ALTER COLUMN success DROP NOT NULL,
    ADD COLUMN IF NOT EXISTS event text, ADD COLUMN IF NOT EXISTS day timestamptz, ADD COLUMN IF NOT EXISTS run text;
CREATE INDEX IF NOT EXISTS validation_event ON truelog.validation (event, day) WHERE event IS NOT NULL;

-- version is NULL if the view's file could not be read, so that nothing was compared.
ALTER TABLE truelog.reconciliation ALTER COLUMN version DROP NOT NULL;

CREATE TABLE IF NOT EXISTS truelog.lag_sample (
    reader text, version integer NOT NULL, at timestamptz, batch_at timestamptz, partitions jsonb NOT NULL,
    PRIMARY KEY (at, reader)
);
ALTER TABLE truelog.lag_sample ADD COLUMN IF NOT EXISTS verdicts jsonb;  -- in the order of the partitions
COMMENT ON TABLE truelog.lag_sample IS 'The lag of each view and of the archive at each poll, by partition; kept for some days';

CREATE TABLE IF NOT EXISTS truelog.operation (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL, subject text NOT NULL, doer text NOT NULL,
    about text NOT NULL, at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.operation IS 'The audit trail: launches, stops, releases, repairs and backfills, each with its user';

CREATE TABLE IF NOT EXISTS truelog.alert (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL, subject text NOT NULL, cause text NOT NULL,
    found_at timestamptz NOT NULL, opened_at timestamptz, told_at timestamptz, gone_at timestamptz,
    acknowledged_at timestamptz, acknowledged_by text, resolved_at timestamptz
);
CREATE UNIQUE INDEX IF NOT EXISTS alert_key ON truelog.alert (kind, subject) WHERE resolved_at IS NULL;
CREATE INDEX IF NOT EXISTS alert_resolved ON truelog.alert (resolved_at);
COMMENT ON TABLE truelog.alert IS 'One row per incident, from its detection to its resolution; pending until opened_at';

CREATE TABLE IF NOT EXISTS truelog.silence (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, pattern text NOT NULL, until timestamptz NOT NULL, made_by text NOT NULL,
    why text NOT NULL, made_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.silence IS 'Patterns of alert keys for which new alerts are not sent: until when, by whom and why';

CREATE TABLE IF NOT EXISTS truelog.notification (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, receiver text NOT NULL, alert bigint NOT NULL REFERENCES truelog.alert,
    says text NOT NULL CHECK (says IN ('open', 'again', 'resolved')), cause text NOT NULL, made_at timestamptz NOT NULL DEFAULT now(),
    tries integer NOT NULL DEFAULT 0, failed text, done_at timestamptz
);
CREATE INDEX IF NOT EXISTS notification_waiting ON truelog.notification (receiver, id) WHERE done_at IS NULL;
CREATE INDEX IF NOT EXISTS notification_alert ON truelog.notification (alert, receiver);
COMMENT ON TABLE truelog.notification IS 'The notifications for each receiver, in order; done when the receiver has accepted or permanently rejected them';

CREATE TABLE IF NOT EXISTS truelog.alert_source (
    source text PRIMARY KEY, looked_at timestamptz NOT NULL, blind text NOT NULL
);
COMMENT ON TABLE truelog.alert_source IS 'When each alert source last checked, and why if the source could not check';

CREATE TABLE IF NOT EXISTS truelog.audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, faults text[] NOT NULL, finished_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.audit IS 'The result of each archive audit: sound if there are no faults';

CREATE TABLE IF NOT EXISTS truelog.certificate (
    id text PRIMARY KEY, view text NOT NULL, version integer NOT NULL, reconciliation bigint NOT NULL REFERENCES truelog.reconciliation,
    positions jsonb NOT NULL, fingerprint text NOT NULL, row_count bigint NOT NULL, digest text NOT NULL, object text NOT NULL,
    made_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS certificate_view ON truelog.certificate (view, version, made_at);
COMMENT ON TABLE truelog.certificate IS 'Each certificate and its object in the bucket: what an EQUAL comparison proved, for `truelog verify`';

-- The known causes of differing rows: each cause with its number of rows and its evidence.
ALTER TABLE truelog.reconciliation ADD COLUMN IF NOT EXISTS causes jsonb NOT NULL DEFAULT '[]';
-- The certificate from which an incremental comparison began; NULL if the comparison read everything.
ALTER TABLE truelog.reconciliation ADD COLUMN IF NOT EXISTS base text;

CREATE TABLE IF NOT EXISTS truelog.batch (
    application text, at timestamptz, steps jsonb NOT NULL, PRIMARY KEY (application, at)
);
COMMENT ON TABLE truelog.batch IS 'How many milliseconds each step of an application''s recent batches took';

CREATE TABLE IF NOT EXISTS truelog.merge_tally (
    view text, version integer, merges bigint NOT NULL, rows bigint NOT NULL, preparing double precision NOT NULL,
    merging double precision NOT NULL, PRIMARY KEY (view, version)
);
ALTER TABLE truelog.merge_tally ADD COLUMN IF NOT EXISTS clock timestamptz;  -- the log's clock at the view's positions
COMMENT ON TABLE truelog.merge_tally IS 'The number of merges of each view, their rows and their duration in seconds; counted in the merge''s own transaction';

CREATE TABLE IF NOT EXISTS truelog.straggler (topic text PRIMARY KEY, records bigint NOT NULL);
COMMENT ON TABLE truelog.straggler IS 'How many records reached the log long after their event, counted by the archive';

CREATE TABLE IF NOT EXISTS truelog.topic_status (
    topic text, application text, reason text NOT NULL, since timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (topic, application)
);
COMMENT ON TABLE truelog.topic_status IS 'The topics that an application has suspended because it cannot read them safely, and why';

-- The leader epoch in which the position was reached. No comparison of positions uses it. NULL: an earlier release merged.
ALTER TABLE truelog.position ADD COLUMN IF NOT EXISTS leader_epoch integer;

CREATE TABLE IF NOT EXISTS truelog.log_cut (
    topic text NOT NULL, topic_id text, partition integer, epoch integer, log_end bigint, found_by text NOT NULL,
    found_at timestamptz NOT NULL DEFAULT now(), trusted_from bigint, accepted_at timestamptz, accepted_by text,
    PRIMARY KEY (topic_id, partition, log_end, epoch)
);
ALTER TABLE truelog.log_cut ADD COLUMN IF NOT EXISTS plan jsonb;  -- of `accept-cut`, so that a repeated command does the same
COMMENT ON TABLE truelog.log_cut IS 'Where the log has lost records that were read already; once accepted, only the archive is read below trusted_from';

CREATE TABLE IF NOT EXISTS truelog.event_file (event text PRIMARY KEY, reason text NOT NULL, since timestamptz NOT NULL DEFAULT now());
COMMENT ON TABLE truelog.event_file IS 'The event types whose files cannot be used, and why; their last registered versions remain in force';

CREATE TABLE IF NOT EXISTS truelog.clock_hold (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), newest timestamptz NOT NULL, machine timestamptz NOT NULL, confirmed timestamptz
);
COMMENT ON TABLE truelog.clock_hold IS 'The jump after which the tick service holds the clock of the log, until the jump is confirmed; at most one row';

CREATE TABLE IF NOT EXISTS truelog.certificate_check (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, certificate text NOT NULL, answer text NOT NULL, row_count bigint NOT NULL,
    unequal_buckets integer NOT NULL, reason text NOT NULL, run text, doer text NOT NULL, finished_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS certificate_check_certificate ON truelog.certificate_check (certificate, id);
COMMENT ON TABLE truelog.certificate_check IS 'The result of each verification that a user requested in Airflow';

CREATE TABLE IF NOT EXISTS truelog.explanation (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, view text NOT NULL, conditions text[] NOT NULL, before text NOT NULL,
    answer jsonb NOT NULL, doer text NOT NULL, finished_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS explanation_question ON truelog.explanation (view, id);
COMMENT ON TABLE truelog.explanation IS 'The explanation of a row that a user requested on a page, or why there is none';
-- Release 0.2 renamed the alert kinds. This file renames the kinds in a 0.1 database once; `back_to_0_1.sql` restores them.
ALTER TABLE truelog.alert ADD COLUMN IF NOT EXISTS opened_as text;
COMMENT ON COLUMN truelog.alert.opened_as IS 'Former kind, under which receivers were notified of the incident before the rename';
ALTER TABLE truelog.silence ADD COLUMN IF NOT EXISTS extends bigint;
COMMENT ON COLUMN truelog.silence.extends IS 'The silence whose pattern matched a former kind; this row covers the new name and ends with that silence';

CREATE TABLE IF NOT EXISTS truelog.alert_kind_rename (
    former text PRIMARY KEY, kind text NOT NULL UNIQUE, renamed_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.alert_kind_rename IS 'Former and current names of alert kinds; empty until the rename has run';

-- True if a letter is in a character class of a shell pattern, such as `a-z_`.
CREATE OR REPLACE FUNCTION truelog.glob_class_has(class text, letter text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    i integer := 1;
BEGIN
    WHILE i <= length(class) LOOP
        IF substr(class, i + 1, 1) = '-' AND i + 2 <= length(class) THEN
            IF letter COLLATE "C" BETWEEN substr(class, i, 1) AND substr(class, i + 2, 1) THEN RETURN true; END IF;
            i := i + 3;
        ELSE
            IF letter = substr(class, i, 1) THEN RETURN true; END IF;
            i := i + 1;
        END IF;
    END LOOP;
    RETURN false;
END $$;

-- The rest of a shell pattern after it has matched a prefix, with a row for each way to match. Patterns work the way they
-- do in Python's `fnmatch`.
CREATE OR REPLACE FUNCTION truelog.glob_rest(pattern text, prefix text) RETURNS SETOF text LANGUAGE sql IMMUTABLE AS $$
    WITH RECURSIVE walk (rest, ahead) AS (
        SELECT pattern, prefix
        UNION
        SELECT step.rest, step.ahead
        FROM walk CROSS JOIN LATERAL (
            SELECT coalesce(substring(walk.rest FROM '^\[(?:!.|[^!])[^]]*\]'), left(walk.rest, 1)) AS token, left(walk.ahead, 1) AS letter
        ) next CROSS JOIN LATERAL (
            SELECT CASE
                WHEN token IN ('*', '?') THEN true
                WHEN token LIKE '[!%' AND length(token) > 1 THEN NOT truelog.glob_class_has(substr(token, 3, length(token) - 3), letter)
                WHEN length(token) > 1 THEN truelog.glob_class_has(substr(token, 2, length(token) - 2), letter)
                ELSE token = letter
            END AS matches
        ) test CROSS JOIN LATERAL (VALUES
            (CASE WHEN token = '*' THEN substr(walk.rest, 2) END, walk.ahead),
            (CASE WHEN matches THEN CASE token WHEN '*' THEN walk.rest ELSE substr(walk.rest, length(token) + 1) END END, substr(walk.ahead, 2))
        ) step (rest, ahead)
        WHERE walk.rest <> '' AND walk.ahead <> '' AND step.rest IS NOT NULL
    )
    SELECT rest FROM walk WHERE ahead = ''
$$;

-- Renames kinds in alerts, silences and the audit trail. Only silences made after `made_after` are extended.
CREATE OR REPLACE FUNCTION truelog.rename_alert_kinds(renames jsonb, made_after timestamptz) RETURNS void LANGUAGE sql AS $$
    -- An incident that is open under both names would violate the unique index, so its former alert is resolved.
    WITH doubled AS (
        UPDATE truelog.alert a SET resolved_at = now() FROM jsonb_each_text(renames) r (was, becomes)
        WHERE a.kind = was AND a.resolved_at IS NULL AND EXISTS (
            SELECT FROM truelog.alert b WHERE (b.kind, b.subject) = (becomes, a.subject) AND b.resolved_at IS NULL
        ) RETURNING a.id, a.cause
    )
    INSERT INTO truelog.notification (receiver, alert, says, cause)
    SELECT DISTINCT n.receiver, d.id, 'resolved', d.cause FROM doubled d JOIN truelog.notification n ON n.alert = d.id;

    UPDATE truelog.alert a SET kind = becomes,
        opened_as = CASE WHEN EXISTS (SELECT FROM truelog.notification n WHERE n.alert = a.id) THEN was END
    FROM jsonb_each_text(renames) r (was, becomes) WHERE a.kind = was;

    UPDATE truelog.operation o SET subject = becomes || substr(subject, length(was) + 1)
    FROM jsonb_each_text(renames) r (was, becomes)
    WHERE o.kind IN ('silence', 'unsilence') AND starts_with(subject, was || '/');

    UPDATE truelog.silence s SET pattern = becomes || substr(pattern, length(was) + 1)
    FROM jsonb_each_text(renames) r (was, becomes) WHERE starts_with(pattern, was || '/');

    -- A pattern such as `st*/x` must continue to cover the kinds that it covered. No subject contains a slash.
    INSERT INTO truelog.silence (pattern, until, made_by, why, made_at, extends)
    SELECT becomes || '/' || rest, until, made_by, why, made_at, id
    FROM truelog.silence s CROSS JOIN jsonb_each_text(renames) r (was, becomes) CROSS JOIN LATERAL (
        SELECT rest FROM truelog.glob_rest(pattern, was || '/') g (rest)
        EXCEPT SELECT rest FROM truelog.glob_rest(pattern, becomes || '/') g (rest)
    ) lost
    WHERE until > now() AND made_at > made_after AND extends IS NULL AND rest NOT LIKE '%/%'
    ORDER BY id, becomes, rest;
$$;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM truelog.alert_kind_rename) THEN
        INSERT INTO truelog.alert_kind_rename (former, kind) VALUES
            ('down', 'application_down'), ('starved', 'no_input'), ('restarting', 'application_restarting'),
            ('falling_off', 'retention_risk'), ('rewound', 'positions_rewound'), ('stands', 'stalled'), ('behind', 'lagging'),
            ('blind', 'lag_unknown'), ('different', 'view_different'), ('undecided', 'reconcile_inconclusive'),
            ('unproved', 'certificate_stale'), ('unsound', 'archive_corrupt'), ('unaudited', 'archive_unaudited'),
            ('unusual', 'quality_anomaly'), ('disk', 'disk_low'), ('unwatched', 'alert_source_down');
        PERFORM truelog.rename_alert_kinds(jsonb_object_agg(former, kind), '-infinity') FROM truelog.alert_kind_rename;
    END IF;
END $$;

-- A 0.1 service that is still running while its successor starts continues to write former kinds.
CREATE OR REPLACE FUNCTION truelog.rename_alert_kind() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.kind := coalesce((SELECT kind FROM truelog.alert_kind_rename WHERE former = NEW.kind), NEW.kind);
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER rename_alert_kind BEFORE INSERT ON truelog.alert FOR EACH ROW EXECUTE FUNCTION truelog.rename_alert_kind();
-- Serving: a view's readers get either the rows of its stream or a batch answer built from the archive. The choice depends
-- only on the data in one snapshot, so each merge, batch answer and comparison takes effect for readers when it commits.
-- Every statement is idempotent.
CREATE SCHEMA IF NOT EXISTS batch;  -- batch answers: for each view and version, a table like the table in `state`

CREATE TABLE IF NOT EXISTS truelog.batch_answer (
    view text, version integer, as_of timestamptz NOT NULL, made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (view, version),
    FOREIGN KEY (view, version) REFERENCES truelog.view
);
ALTER TABLE truelog.batch_answer ALTER COLUMN as_of DROP NOT NULL;  -- NULL if the archive's lag is not known
ALTER TABLE truelog.batch_answer ADD COLUMN IF NOT EXISTS clock timestamptz;  -- the log's clock at the answer's positions
COMMENT ON TABLE truelog.batch_answer IS 'Views for which the batch layer has an answer, and the time up to which the answer covers the log';

CREATE TABLE IF NOT EXISTS truelog.batch_position (
    view text, version integer, topic text, partition integer, topic_id text NOT NULL, next_offset bigint NOT NULL,
    PRIMARY KEY (view, version, topic, partition),
    FOREIGN KEY (view, version) REFERENCES truelog.batch_answer ON DELETE CASCADE
);
ALTER TABLE truelog.batch_position ADD COLUMN IF NOT EXISTS reading integer NOT NULL DEFAULT 0;
COMMENT ON TABLE truelog.batch_position IS 'The log position of each batch answer, and the reading under which it was built';

CREATE OR REPLACE VIEW truelog.view_position AS
SELECT view, version, topic, partition, topic_id, next_offset, reading FROM truelog.position
UNION ALL SELECT view, version, topic, partition, topic_id, next_offset, reading
FROM truelog.batch_position JOIN truelog.view USING (view, version) WHERE batch_only;
COMMENT ON VIEW truelog.view_position IS 'The log position of each view''s own rows: those of its stream, or of a batch-only view';

CREATE TABLE IF NOT EXISTS truelog.batch_refusal (
    view text PRIMARY KEY, files text NOT NULL, reason text NOT NULL, at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.batch_refusal IS 'Why a view cannot be rebuilt while the code files have this hash';

-- Views whose last conclusive comparison was DIFFERENT and was not fully repaired; UNKNOWN changes nothing. If the archive
-- or a partial is wrong (`truelog.reconcile.offset_search`), the rebuild is wrong, so the stream stays visible. The next
-- build of a batch-only view replaces all of its rows.
CREATE OR REPLACE VIEW truelog.quarantine AS
SELECT v.view, v.version, r.id AS reconciliation, r.finished_at AS since
FROM truelog.view v CROSS JOIN LATERAL (
    SELECT * FROM truelog.reconciliation r
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
SELECT view, version, topic, partition, topic_id, next_offset
FROM truelog.batch_position JOIN truelog.batch_layer USING (view, version)
UNION ALL SELECT view, version, topic, partition, topic_id, next_offset FROM truelog.position p
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

CREATE OR REPLACE VIEW truelog.answer AS
SELECT d.view, d.version, served.layer, at.as_of, extract(epoch FROM now() - at.as_of)::float8 AS age,
    why.matter || CASE WHEN why.matter <> '' AND (b.view IS NULL OR d.batch_only) AND f.reason IS NOT NULL
        THEN '; it cannot be rebuilt: ' || f.reason ELSE '' END AS reason
FROM truelog.deployed d
LEFT JOIN truelog.batch_layer b USING (view, version)
LEFT JOIN truelog.quarantine q USING (view, version)
LEFT JOIN truelog.standing s ON s.view = d.view
LEFT JOIN truelog.application_status a ON a.application = s.application
LEFT JOIN truelog.batch_refusal f ON f.view = d.view
CROSS JOIN LATERAL (SELECT CASE WHEN b.view IS NULL AND NOT d.batch_only THEN 'stream' ELSE 'batch' END AS layer) served
CROSS JOIN LATERAL (SELECT CASE WHEN served.layer = 'stream' THEN truelog.complete_until(d.view, d.version, d.reads) ELSE b.as_of END AS as_of) at
CROSS JOIN LATERAL (SELECT CASE
    WHEN q.reconciliation IS NOT NULL THEN format('rows of the %s differ from the rebuild (reconciliation %s)',
        CASE WHEN d.batch_only THEN 'batch layer' ELSE 'stream' END, q.reconciliation)
    WHEN d.batch_only AND b.view IS NULL THEN 'batch-only and not built yet'
    WHEN d.batch_only THEN format('batch-only, built at %s UTC', to_char(b.made_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'))
    WHEN s.state = 'STALLED' THEN 'its stream is stalled'
    WHEN a.desired = 'stopped' THEN format('%s is stopped', a.application)
    WHEN NOT a.alive THEN format('%s is not running', a.application)
    WHEN b.view IS NOT NULL THEN format('%s is catching up', coalesce(a.application, 'its stream'))
    ELSE '' END AS matter) why;
COMMENT ON VIEW truelog.answer IS 'The layer that serves each view''s readers, the time up to which the layer covers the log, and the reason if the view has a problem';
GRANT SELECT ON truelog.answer TO PUBLIC;  -- only roles that may use the `truelog` schema can reach it

CREATE OR REPLACE VIEW truelog.clock AS
SELECT view, version, CASE WHEN b.view IS NULL THEN t.clock ELSE a.clock END AS time
FROM truelog.view v LEFT JOIN truelog.merge_tally t USING (view, version)
LEFT JOIN truelog.batch_layer b USING (view, version) LEFT JOIN truelog.batch_answer a USING (view, version);
COMMENT ON VIEW truelog.clock IS 'The log''s clock at the positions of the rows that readers see; NULL if the view does not depend on it';
