-- The tables of Truelog. The SQL views and functions are in `repeatable/`.

-- `truelog up` has already created some of these schemas, with rights for the roles that use them.
CREATE SCHEMA IF NOT EXISTS truelog;  -- the kernel's own tables
CREATE SCHEMA IF NOT EXISTS state;    -- one table per view and version, in a form that can be merged
CREATE SCHEMA IF NOT EXISTS stage;    -- rows that executors have loaded for a merge
CREATE SCHEMA IF NOT EXISTS batch;    -- batch answers: for each view and version, a table like the table in `state`
CREATE SCHEMA IF NOT EXISTS recon;    -- copies that a comparison uses
CREATE SCHEMA IF NOT EXISTS views;    -- what readers see
CREATE SCHEMA IF NOT EXISTS replay;   -- experimental copies of views
CREATE SCHEMA IF NOT EXISTS iceberg;  -- the archive's catalog

CREATE TABLE truelog.migration (number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());
COMMENT ON TABLE truelog.migration IS 'The migrations that this database has';


-- The archive's catalog. PyIceberg and Spark share these tables and would create them, but Spark's role may not create tables.

CREATE TABLE iceberg.iceberg_tables (
    catalog_name varchar(255), table_namespace varchar(255), table_name varchar(255), metadata_location varchar(1000),
    previous_metadata_location varchar(1000), iceberg_type varchar(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);

CREATE TABLE iceberg.iceberg_namespace_properties (
    catalog_name varchar(255), namespace varchar(255), property_key varchar(255), property_value varchar(1000) NOT NULL,
    PRIMARY KEY (catalog_name, namespace, property_key)
);


-- Event types and the log

CREATE TABLE truelog.event_type (event text PRIMARY KEY, settings jsonb NOT NULL);
COMMENT ON TABLE truelog.event_type IS 'The event types, with the settings of their topics and their expected quality';

CREATE TABLE truelog.event_version (
    event text REFERENCES truelog.event_type, version integer, declaration jsonb NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event, version)
);
COMMENT ON TABLE truelog.event_version IS 'Each declaration of an event type that has been in force. Never changed or deleted';

CREATE TABLE truelog.event_cut (
    id bigint GENERATED ALWAYS AS IDENTITY, event text, topic_id text, reading integer, version integer,
    first_offsets jsonb NOT NULL, made_at timestamptz NOT NULL DEFAULT now(), began jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (event, topic_id, reading, version),
    FOREIGN KEY (event, version) REFERENCES truelog.event_version
);
COMMENT ON TABLE truelog.event_cut IS 'The first offset of each partition that a version judges, by reading of the topic''s history';

CREATE TABLE truelog.event_file (event text PRIMARY KEY, reason text NOT NULL, since timestamptz NOT NULL DEFAULT now());
COMMENT ON TABLE truelog.event_file IS 'The event types whose files cannot be used, and why; their last registered versions remain in force';

CREATE TABLE truelog.topic_status (
    topic text, application text, reason text NOT NULL, since timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (topic, application)
);
COMMENT ON TABLE truelog.topic_status IS 'The topics that an application has suspended because it cannot read them safely, and why';

CREATE TABLE truelog.log_day (
    topic text, partition integer, topic_id text, day bigint, first_offset bigint NOT NULL,
    PRIMARY KEY (topic_id, partition, day)
);
COMMENT ON TABLE truelog.log_day IS 'The first offset of each log day in each partition: recorded once, never changed';

CREATE TABLE truelog.log_cut (
    topic text NOT NULL, topic_id text, partition integer, epoch integer, log_end bigint, found_by text NOT NULL,
    found_at timestamptz NOT NULL DEFAULT now(), trusted_from bigint, accepted_at timestamptz, accepted_by text,
    plan jsonb,  -- of `accept-cut`, so that a repeated command does the same
    PRIMARY KEY (topic_id, partition, log_end, epoch)
);
COMMENT ON TABLE truelog.log_cut IS 'Where the log has lost records that were read already; once accepted, only the archive is read below trusted_from';

CREATE TABLE truelog.tick (
    topic_id text, "offset" bigint, time timestamptz NOT NULL, ends jsonb NOT NULL,
    PRIMARY KEY (topic_id, "offset")
);
COMMENT ON TABLE truelog.tick IS 'Ticks that a view with `keep` may still need to determine its clock';

CREATE TABLE truelog.wrong_clock (
    topic_id text, time timestamptz, found_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (topic_id, time)
);
COMMENT ON TABLE truelog.wrong_clock IS 'Times that the stored ticks gave and the archive''s ticks did not; comparisons have replaced the stored ticks';

CREATE TABLE truelog.clock_hold (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), newest timestamptz NOT NULL, machine timestamptz NOT NULL, confirmed timestamptz
);
COMMENT ON TABLE truelog.clock_hold IS 'The jump after which the tick service holds the clock of the log, until the jump is confirmed; at most one row';

CREATE TABLE truelog.straggler (topic text PRIMARY KEY, records bigint NOT NULL);
COMMENT ON TABLE truelog.straggler IS 'How many records reached the log long after their event, counted by the archive';

CREATE TABLE truelog.replay (
    topic_id text, partition integer, "offset" bigint, target text NOT NULL, "begin" text NOT NULL, doer text NOT NULL,
    reserved_at timestamptz NOT NULL DEFAULT now(), sent_partition integer, sent_offset bigint, sent_at timestamptz,
    PRIMARY KEY (topic_id, partition, "offset")
);
CREATE INDEX replay_unconfirmed ON truelog.replay (target) WHERE sent_offset IS NULL;
COMMENT ON TABLE truelog.replay IS 'Each dead letter that was sent again: reserved before it is sent, confirmed with its place in the target topic. Kept forever, as dead letters are';


-- Views and their positions

CREATE TABLE truelog.view (
    view text, version integer, fingerprint text NOT NULL, spark text NOT NULL, made_at timestamptz NOT NULL DEFAULT now(),
    reads text[],  -- the view's topics, known before its first merge
    sides text[] NOT NULL DEFAULT '{}',  -- the names of the view's side tables
    batch_only boolean NOT NULL DEFAULT false,  -- no stream runs this version
    needs_order boolean,  -- depends on the order of a key's events, so its topics must not grow; NULL is not known
    repairs bigint NOT NULL DEFAULT 0,  -- a merge that has read rows before a repair is refused
    shown text,  -- hash of the statements that define the relations that readers see
    deployed_at timestamptz,  -- when an application last began to run this version
    removed_at timestamptz,  -- when the view's file was found to be gone
    source text,  -- the file that declares this version, so that its stream goes on when the file declares another one
    definitions text[],  -- the statements that let readers see this version under the view's name
    pinned text,  -- hash of the statements that define what readers see of this version under its own name
    held boolean NOT NULL DEFAULT false,  -- readers were moved back from this version, so they do not return by themselves
    PRIMARY KEY (view, version)
);
COMMENT ON TABLE truelog.view IS 'The code that made each view''s table. A merge locks the view''s row';

CREATE TABLE truelog.version_share (
    view text PRIMARY KEY, version integer NOT NULL, percent integer NOT NULL CHECK (percent BETWEEN 1 AND 100),
    since timestamptz NOT NULL DEFAULT now(), FOREIGN KEY (view, version) REFERENCES truelog.view
);
COMMENT ON TABLE truelog.version_share IS 'The version of a view that a share of the API''s readers gets, and the percentage of its readers. At most one version of each view';

CREATE TABLE truelog.position (
    view text, version integer, topic text, partition integer, topic_id text NOT NULL, next_offset bigint NOT NULL,
    reading integer NOT NULL DEFAULT 0,  -- under which the view counted the records below the position
    leader_epoch integer,  -- in which the position was reached; NULL if not known. No comparison of positions uses it
    advanced_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (view, version, topic, partition),
    FOREIGN KEY (view, version) REFERENCES truelog.view
);
COMMENT ON TABLE truelog.position IS 'The log position up to which each view has merged';

CREATE TABLE truelog.merge_tally (
    view text, version integer, merges bigint NOT NULL, rows bigint NOT NULL, preparing double precision NOT NULL,
    merging double precision NOT NULL,
    clock timestamptz,  -- the log's clock at the view's positions
    records bigint NOT NULL DEFAULT 0,  -- that the view has read
    hour timestamptz, hour_records bigint NOT NULL DEFAULT 0,  -- the hour of the last merge, and the records read in it
    earlier_records bigint NOT NULL DEFAULT 0,  -- read in the hour before
    PRIMARY KEY (view, version)
);
COMMENT ON TABLE truelog.merge_tally IS 'The number of merges of each view, their rows and their duration in seconds; counted in the merge''s own transaction';

CREATE TABLE truelog.exclusion (
    view text, version integer, topic text NOT NULL, partition integer, "offset" bigint, error text NOT NULL,
    noticed_at timestamptz NOT NULL DEFAULT now(),
    topic_id text, reading integer,  -- under which the record was judged
    merged bigint NOT NULL DEFAULT 0,  -- the records that the view had read with this one
    proof text, proved_at timestamptz,  -- the code under which the record was last tried alone
    refuted boolean NOT NULL DEFAULT false,  -- the transform did not fail on it, so rebuilds count the record
    PRIMARY KEY (view, version, topic_id, partition, "offset", reading)
);
COMMENT ON TABLE truelog.exclusion IS 'Records on which a view''s transform failed. Both stream and rebuild skip them';

CREATE TABLE truelog.oversized_group (
    view text, version integer, "group" jsonb, noticed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (view, version, "group")
);
COMMENT ON TABLE truelog.oversized_group IS 'Groups with more inputs than their view allows, noticed by a merge. They have no rows, or those of the first inputs';

CREATE TABLE truelog.failed_group (
    view text, version integer, "group" jsonb, error text NOT NULL, noticed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (view, version, "group")
);
COMMENT ON TABLE truelog.failed_group IS 'Groups on whose inputs the fold of their view failed. They have no rows';

CREATE TABLE truelog.standing (
    view text NOT NULL, application text NOT NULL, version integer, state text NOT NULL CHECK (state IN ('UP_TO_DATE', 'STALLED', 'UNBUILT')),
    reason text NOT NULL, since timestamptz NOT NULL DEFAULT now(),
    declared boolean NOT NULL DEFAULT true,  -- the view's file declares this version
    UNIQUE NULLS NOT DISTINCT (view, version)
);
CREATE UNIQUE INDEX standing_declared ON truelog.standing (view) WHERE declared;
COMMENT ON TABLE truelog.standing IS 'Whether each version of a view that runs is up to date with the log, stalled, or waits until it is built, and why; written by the view''s application';


-- The batch layer

CREATE TABLE truelog.batch_answer (
    view text, version integer,
    as_of timestamptz,  -- NULL if the archive's lag is not known
    made_at timestamptz NOT NULL DEFAULT now(),
    clock timestamptz,  -- the log's clock at the answer's positions
    PRIMARY KEY (view, version),
    FOREIGN KEY (view, version) REFERENCES truelog.view
);
COMMENT ON TABLE truelog.batch_answer IS 'Views for which the batch layer has an answer, and the time up to which the answer covers the log';

CREATE TABLE truelog.batch_position (
    view text, version integer, topic text, partition integer, topic_id text NOT NULL, next_offset bigint NOT NULL,
    reading integer NOT NULL DEFAULT 0,
    PRIMARY KEY (view, version, topic, partition),
    FOREIGN KEY (view, version) REFERENCES truelog.batch_answer ON DELETE CASCADE
);
COMMENT ON TABLE truelog.batch_position IS 'The log position of each batch answer, and the reading under which it was built';

CREATE TABLE truelog.batch_refusal (
    view text PRIMARY KEY, files text NOT NULL, reason text NOT NULL, at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.batch_refusal IS 'Why a view cannot be rebuilt while the code files have this hash';

CREATE TABLE truelog.recomputation (
    attempt text, view text, day timestamptz, run text, state text NOT NULL DEFAULT 'waiting', keys bigint,
    changed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (attempt, view, day)
);
CREATE INDEX recomputation_partial ON truelog.recomputation (view, day);
COMMENT ON TABLE truelog.recomputation IS 'How far each recompute is, by view and log day: waiting, running, done or failed';


-- Comparisons, repairs and certificates

CREATE TABLE truelog.reconciliation (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, view text NOT NULL,
    version integer,  -- NULL if the view's file could not be read, so that nothing was compared
    positions jsonb NOT NULL, from_raw boolean NOT NULL, row_count bigint NOT NULL, missing bigint NOT NULL,
    extra bigint NOT NULL, different bigint NOT NULL, repaired bigint NOT NULL, verdict text NOT NULL, reason text NOT NULL, sample jsonb NOT NULL,
    causes jsonb NOT NULL DEFAULT '[]',  -- the known causes of differing rows: each cause with its number of rows and its evidence
    base text,  -- the certificate from which an incremental comparison began; NULL if the comparison read everything
    run text,  -- the run of the `reconcile` DAG that requested the comparison; NULL if a user requested it on the command line
    finished_at timestamptz NOT NULL DEFAULT now(),
    bytes bigint  -- the size of the streamed table with its indexes; NULL if there was none
);
CREATE INDEX reconciliation_view ON truelog.reconciliation (view, version, id);
CREATE INDEX reconciliation_newest ON truelog.reconciliation (view, id);
CREATE INDEX reconciliation_run ON truelog.reconciliation (run);
COMMENT ON TABLE truelog.reconciliation IS 'The result of each comparison of a streamed view with its rebuild';

CREATE TABLE truelog.validation (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reconciliation bigint REFERENCES truelog.reconciliation,  -- or else a log day of an event type
    event text, day timestamptz, run text,
    success boolean,  -- NULL if no metric could be checked
    failed text[] NOT NULL, result jsonb NOT NULL, finished_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX validation_reconciliation ON truelog.validation (reconciliation);
CREATE INDEX validation_event ON truelog.validation (event, day) WHERE event IS NOT NULL;
COMMENT ON TABLE truelog.validation IS 'Great Expectations results: the failed expectations, and the full result';

CREATE TABLE truelog.figure (
    event text, day timestamptz, name text, value double precision, usual double precision, least double precision,
    most double precision, unjudged text NOT NULL, measured_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event, day, name)
);
COMMENT ON TABLE truelog.figure IS 'Quality metrics of each log day of each event type with their bounds; unjudged: why a metric was not checked';

CREATE TABLE truelog.repair (
    view text NOT NULL, version integer NOT NULL, positions jsonb NOT NULL, key jsonb NOT NULL, before jsonb, after jsonb,
    repaired_at timestamptz NOT NULL DEFAULT now(),
    side text NOT NULL DEFAULT ''  -- the side table; '' for the view's own
);
CREATE INDEX repair_view ON truelog.repair (view, version, repaired_at);
COMMENT ON TABLE truelog.repair IS 'Each row that a repair changed, with its values before and after the repair';

CREATE TABLE truelog.proof (
    view text, version integer, day timestamptz, proved_at timestamptz NOT NULL DEFAULT now(),
    partials text NOT NULL DEFAULT '',  -- the ids of the partials that were compared
    PRIMARY KEY (view, version, day)
);
COMMENT ON TABLE truelog.proof IS 'When each partial was last compared with the raw bytes of its day';

CREATE TABLE truelog.base (
    view text, version integer, certificate text NOT NULL, snapshot bigint NOT NULL, slices jsonb NOT NULL,
    begun_at timestamptz NOT NULL, proved_at timestamptz, PRIMARY KEY (view, version)
);
COMMENT ON TABLE truelog.base IS 'The rows that the newest incremental comparison begins from: their certificate, and the hash of each slice';

CREATE TABLE truelog.certificate (
    id text PRIMARY KEY, view text NOT NULL, version integer NOT NULL, reconciliation bigint NOT NULL REFERENCES truelog.reconciliation,
    positions jsonb NOT NULL, fingerprint text NOT NULL, row_count bigint NOT NULL, digest text NOT NULL, object text NOT NULL,
    made_at timestamptz NOT NULL
);
CREATE INDEX certificate_view ON truelog.certificate (view, version, made_at);
COMMENT ON TABLE truelog.certificate IS 'Each certificate and its object in the bucket: what an EQUAL comparison proved, for `truelog verify`';

CREATE TABLE truelog.certificate_check (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, certificate text NOT NULL, answer text NOT NULL, row_count bigint NOT NULL,
    unequal_buckets integer NOT NULL, reason text NOT NULL, run text, doer text NOT NULL, finished_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX certificate_check_certificate ON truelog.certificate_check (certificate, id);
COMMENT ON TABLE truelog.certificate_check IS 'The result of each verification that a user requested in Airflow';

CREATE TABLE truelog.audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, faults text[] NOT NULL, finished_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.audit IS 'The result of each archive audit: sound if there are no faults';

CREATE TABLE truelog.explanation (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, view text NOT NULL, conditions text[] NOT NULL, before text NOT NULL,
    answer jsonb NOT NULL, doer text NOT NULL, finished_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX explanation_question ON truelog.explanation (view, id);
COMMENT ON TABLE truelog.explanation IS 'The explanation of a row that a user requested on a page, or why there is none';

CREATE TABLE truelog.past_question (
    digest text PRIMARY KEY,  -- of the view, its version, the time, and what was asked
    view text NOT NULL, version integer NOT NULL, at timestamptz NOT NULL, asked jsonb NOT NULL, asker text NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(), tries integer NOT NULL DEFAULT 0,  -- of the job
    answered_at timestamptz, status integer, said jsonb, rows text[],  -- the rows as JSON, as PostgreSQL writes them
    CHECK ((answered_at IS NULL) = (status IS NULL))
);
CREATE INDEX past_question_waiting ON truelog.past_question (asked_at) WHERE answered_at IS NULL;
COMMENT ON TABLE truelog.past_question IS 'What applications asked about the past of views, and the answers';


-- Output

CREATE TABLE truelog.output (
    view text, version integer,
    number bigint NOT NULL DEFAULT 0,  -- of the last row of the outbox. Only a session that has locked the view's row draws one
    beginning uuid, first bigint NOT NULL,  -- the whole table begins with this number; NULL if the view does not publish
    sent bigint NOT NULL DEFAULT 0, trouble text NOT NULL DEFAULT '',  -- how far the relay is, and why it cannot go on
    PRIMARY KEY (view, version)
);
COMMENT ON TABLE truelog.output IS 'The views that publish their changes. A row outlives its output, because numbers never repeat';

CREATE TABLE truelog.output_step (
    view text, version integer, last bigint, id uuid NOT NULL DEFAULT gen_random_uuid(), positions jsonb NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(), records text,
    traceparent text,  -- the span of its merge, if its trace is sampled
    PRIMARY KEY (view, version, last)
);
COMMENT ON TABLE truelog.output_step IS 'The transactions that changed a published view, with the number of the last row of each';

CREATE TABLE truelog.outbox (
    view text, version integer, number bigint, step bigint NOT NULL, key text NOT NULL, value text,
    PRIMARY KEY (view, version, number)
);
COMMENT ON TABLE truelog.outbox IS 'The changed rows of published views, in order: key and row as JSON, without a value if the row vanished';

CREATE TABLE truelog.relay (one boolean PRIMARY KEY DEFAULT true CHECK (one), looked_at timestamptz NOT NULL);
COMMENT ON TABLE truelog.relay IS 'When the relay service last looked for rows to publish; at most one row';


-- Applications

CREATE TABLE truelog.application (
    application text PRIMARY KEY, desired text NOT NULL DEFAULT 'running' CHECK (desired IN ('running', 'stopped')),
    code text, digest text,
    wish text,  -- a request to restart the application, fulfilled by the launch that contains the same value
    old_launches bigint NOT NULL DEFAULT 0  -- the number of deleted launches: a metric counts all launches since the beginning
);
COMMENT ON TABLE truelog.application IS 'The desired state and code of each application. `code` was derived from files with the hash `digest`';

CREATE TABLE truelog.lease (
    application text PRIMARY KEY, epoch bigint NOT NULL, host text NOT NULL, pid integer NOT NULL,
    incarnation uuid,  -- a random id of the holder, because a database that was restored from a backup issues the same epochs again
    process_at double precision,  -- when the process started, in seconds from its machine's start: another process may reuse the pid
    code text,  -- that the holder is running
    taken_at timestamptz NOT NULL DEFAULT now(), batch_at timestamptz
);
-- The unique index makes the holder a key: FOR KEY SHARE in a merge blocks a new holder, but not the end of a batch.
CREATE UNIQUE INDEX lease_holder ON truelog.lease (application, epoch, incarnation);
COMMENT ON TABLE truelog.lease IS 'The process that runs each application. A higher epoch fences off all lower epochs';

CREATE TABLE truelog.launch (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, application text NOT NULL, reason text NOT NULL, wish text,
    launched_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX launch_application ON truelog.launch (application, launched_at);
COMMENT ON TABLE truelog.launch IS 'Each start of an application: its reason, and the restart request that it fulfils';

CREATE TABLE truelog.batch (
    application text, at timestamptz, steps jsonb NOT NULL, PRIMARY KEY (application, at)
);
COMMENT ON TABLE truelog.batch IS 'How many milliseconds each step of an application''s recent batches took';

CREATE TABLE truelog.lag_sample (
    reader text, version integer NOT NULL, at timestamptz, batch_at timestamptz, partitions jsonb NOT NULL,
    verdicts jsonb,  -- in the order of the partitions
    PRIMARY KEY (at, reader)
);
COMMENT ON TABLE truelog.lag_sample IS 'The lag of each view and of the archive at each poll, by partition; kept for some days';

CREATE TABLE truelog.capture (
    event_type text PRIMARY KEY, epoch integer NOT NULL DEFAULT 1, refused text, since timestamptz NOT NULL DEFAULT now(),
    checked_offset bigint NOT NULL DEFAULT 0,  -- up to here, invalid changes were looked for
    unjudged bigint NOT NULL DEFAULT 0,  -- offsets of the topic that were left at that look
    compared_from timestamptz NOT NULL DEFAULT now(),  -- from here on, a daily comparison is due
    compared_at timestamptz, comparison text, comparison_reason text,  -- the last comparison with the table itself
    equal_at timestamptz,  -- the last comparison that found them EQUAL
    retained_at timestamptz, retained bigint,  -- bytes that the replication slot retained at a time
    growth double precision,  -- of these bytes, an hour
    checked_reading integer NOT NULL DEFAULT 0  -- of the event type, in which invalid changes were looked for
);
COMMENT ON TABLE truelog.capture IS 'The captured tables: the epoch of each, and why a table is not captured';

CREATE TABLE truelog.invalid_change (
    event_type text, key text, place text NOT NULL, reason text NOT NULL, since timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event_type, key)
);
COMMENT ON TABLE truelog.invalid_change IS 'The rows of captured tables whose last change is invalid, with the reason';


-- Users and alerts

CREATE TABLE truelog.api_key (
    name text PRIMARY KEY,
    role text NOT NULL CHECK (role IN ('producer', 'reader', 'admin', 'browser', 'editor', 'archivist')),
    sha256 bytea NOT NULL, made_at timestamptz NOT NULL DEFAULT now(), revoked_at timestamptz,
    origins text[], event_types text[],
    CHECK ((role = 'browser') = (origins IS NOT NULL) AND (role = 'browser') = (event_types IS NOT NULL))
);
COMMENT ON TABLE truelog.api_key IS 'The API keys and their roles. Only the hash of a key is stored';

CREATE TABLE truelog.view_reader (
    view text, reader text, day date, answers bigint NOT NULL, last_at timestamptz NOT NULL,
    PRIMARY KEY (view, reader, day)
);
COMMENT ON TABLE truelog.view_reader IS 'How many answers about each view the holder of each API key got on each day';

CREATE TABLE truelog.operation (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL, subject text NOT NULL, doer text NOT NULL,
    about text NOT NULL, at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.operation IS 'The audit trail: launches, stops, releases, repairs and backfills, each with its user';

CREATE TABLE truelog.alert (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL, subject text NOT NULL, cause text NOT NULL,
    found_at timestamptz NOT NULL, opened_at timestamptz, told_at timestamptz, gone_at timestamptz,
    acknowledged_at timestamptz, acknowledged_by text, resolved_at timestamptz
);
CREATE UNIQUE INDEX alert_key ON truelog.alert (kind, subject) WHERE resolved_at IS NULL;
CREATE INDEX alert_resolved ON truelog.alert (resolved_at);
COMMENT ON TABLE truelog.alert IS 'One row per incident, from its detection to its resolution; pending until opened_at';

CREATE TABLE truelog.silence (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, pattern text NOT NULL, until timestamptz NOT NULL, made_by text NOT NULL,
    why text NOT NULL, made_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.silence IS 'Patterns of alert keys for which new alerts are not sent: until when, by whom and why';

CREATE TABLE truelog.notification (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, receiver text NOT NULL, alert bigint NOT NULL REFERENCES truelog.alert,
    says text NOT NULL CHECK (says IN ('open', 'again', 'resolved')), cause text NOT NULL, made_at timestamptz NOT NULL DEFAULT now(),
    tries integer NOT NULL DEFAULT 0, failed text, done_at timestamptz
);
CREATE INDEX notification_waiting ON truelog.notification (receiver, id) WHERE done_at IS NULL;
CREATE INDEX notification_alert ON truelog.notification (alert, receiver);
COMMENT ON TABLE truelog.notification IS 'The notifications for each receiver, in order; done when the receiver has accepted or permanently rejected them';

CREATE TABLE truelog.alert_source (
    source text PRIMARY KEY, looked_at timestamptz NOT NULL, blind text NOT NULL
);
COMMENT ON TABLE truelog.alert_source IS 'When each alert source last checked, and why if the source could not check';


-- Notifications of what events say

CREATE TABLE truelog.notifier (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), looked_at timestamptz NOT NULL, topic_id text, next_offset bigint
);
COMMENT ON TABLE truelog.notifier IS 'When the notifier last looked for changes, and how far the notification rules were read; at most one row';

CREATE TABLE truelog.notification_place (
    view text PRIMARY KEY, version integer NOT NULL, beginning uuid NOT NULL, number bigint NOT NULL
);
COMMENT ON TABLE truelog.notification_place IS 'The number of the last changed row of each view that the notifier has read';

CREATE TABLE truelog.notification_incident (
    id uuid PRIMARY KEY, notification text NOT NULL, channel text NOT NULL, grouped text NOT NULL, until timestamptz NOT NULL,
    body jsonb NOT NULL, opened_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX notification_incident_group ON truelog.notification_incident (notification, grouped, until);
COMMENT ON TABLE truelog.notification_incident IS 'The rows of one notification rule that one notification tells of, with what it said';

CREATE TABLE truelog.notification_row (
    notification text, view text, key text, number bigint NOT NULL, change text NOT NULL, value text NOT NULL,
    settled_after timestamptz, incident uuid REFERENCES truelog.notification_incident, retracted boolean NOT NULL DEFAULT false, changed_at timestamptz NOT NULL DEFAULT now(),
    declared uuid,  -- hash of the declaration of the rule, if the row counts only under it
    PRIMARY KEY (notification, view, key)
);
CREATE INDEX notification_row_declared ON truelog.notification_row (declared) WHERE declared IS NOT NULL;
CREATE INDEX notification_row_key ON truelog.notification_row (view, key);
CREATE INDEX notification_row_untold ON truelog.notification_row (view) WHERE incident IS NULL;
CREATE INDEX notification_row_incident ON truelog.notification_row (incident);
COMMENT ON TABLE truelog.notification_row IS 'The rows that a notification rule fits; without an incident until they are settled';

CREATE TABLE truelog.notification_delivery (
    id uuid PRIMARY KEY, number bigint GENERATED ALWAYS AS IDENTITY, incident uuid NOT NULL REFERENCES truelog.notification_incident,
    channel text NOT NULL, says text NOT NULL CHECK (says IN ('opened', 'retracted', 'resolved', 'ended')), made_at timestamptz NOT NULL DEFAULT now(),
    tries integer NOT NULL DEFAULT 0, next_at timestamptz NOT NULL DEFAULT now(), failed text,
    outcome text CHECK (outcome IN ('delivered', 'refused', 'abandoned', 'over')), done_at timestamptz
);
CREATE INDEX notification_delivery_waiting ON truelog.notification_delivery (channel, next_at, number) WHERE done_at IS NULL;
CREATE INDEX notification_delivery_held ON truelog.notification_delivery (incident) WHERE done_at IS NULL AND next_at = 'infinity';
CREATE INDEX notification_delivery_lost ON truelog.notification_delivery (done_at) WHERE outcome IN ('refused', 'abandoned');
CREATE INDEX notification_delivery_incident ON truelog.notification_delivery (incident, number);
COMMENT ON TABLE truelog.notification_delivery IS 'The notifications of incidents, with the tries to deliver each';


-- Replays

CREATE TABLE truelog.view_replay (
    replay text PRIMARY KEY, view text NOT NULL, version integer NOT NULL, fingerprint text NOT NULL, doer text NOT NULL,
    begins jsonb NOT NULL, ends jsonb NOT NULL,  -- offsets by topic and partition: from the first of these to before the others
    tables text[] NOT NULL, relations text[] NOT NULL,
    began_at timestamptz NOT NULL DEFAULT now(), built_at timestamptz, drop_at timestamptz NOT NULL,
    left_out bigint NOT NULL DEFAULT 0, left_out_error text  -- the records on which its code fails
);
COMMENT ON TABLE truelog.view_replay IS 'Experimental copies of views: the records that each has counted, and when it is dropped';


-- Commands

CREATE TABLE truelog.command_number (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), beginning uuid NOT NULL DEFAULT gen_random_uuid(),
    first bigint NOT NULL DEFAULT 1, last bigint NOT NULL DEFAULT 0
);
INSERT INTO truelog.command_number DEFAULT VALUES;
COMMENT ON TABLE truelog.command_number IS 'The last number of an event in the command log, and where its numbers began';

CREATE TABLE truelog.command_fold (
    event text PRIMARY KEY, code text NOT NULL, topic_id text NOT NULL, generation uuid NOT NULL DEFAULT gen_random_uuid()
);
COMMENT ON TABLE truelog.command_fold IS 'The code and the topic that made the states of an event type''s keys';

CREATE TABLE truelog.command_position (
    event text REFERENCES truelog.command_fold, partition integer, next_offset bigint NOT NULL, PRIMARY KEY (event, partition)
);
COMMENT ON TABLE truelog.command_position IS 'The positions of the states of an event type''s keys';

CREATE TABLE truelog.command_key (
    event text, key text, events bigint NOT NULL DEFAULT 0, state jsonb NOT NULL DEFAULT '{}', PRIMARY KEY (event, key)
);
COMMENT ON TABLE truelog.command_key IS 'The state of each key as the log says, and the number of its events; decisions lock the row';

CREATE TABLE truelog.command (
    receipt uuid PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), command text NOT NULL, key text NOT NULL,
    sender text NOT NULL, idempotency_key text, body_sha256 bytea NOT NULL, status smallint NOT NULL, answer jsonb NOT NULL,
    said text CHECK (said IN ('log', 'receipt'))
);
CREATE UNIQUE INDEX command_idempotency ON truelog.command (sender, idempotency_key);
CREATE INDEX command_at ON truelog.command (at);
COMMENT ON TABLE truelog.command IS 'Each decision with its answer. said: whether the answer had coordinates or only a receipt';

CREATE TABLE truelog.command_event (
    number bigint PRIMARY KEY, event_id text NOT NULL UNIQUE, receipt uuid NOT NULL REFERENCES truelog.command,
    at timestamptz NOT NULL DEFAULT now(), event text NOT NULL, key text NOT NULL, value bytea NOT NULL,
    partition integer, "offset" bigint
);
CREATE INDEX command_event_receipt ON truelog.command_event (receipt);
CREATE INDEX command_event_pending ON truelog.command_event (event, key, number) WHERE "offset" IS NULL;
COMMENT ON TABLE truelog.command_event IS 'The command log: the events of accepted commands; with coordinates once the log''s reader has read them';


-- Erasures

-- `id` is the id of the event. Constraints keep free text out, because a ledger that names the person is a copy.
CREATE TABLE truelog.erasure (
    id uuid PRIMARY KEY, number bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    step smallint NOT NULL DEFAULT 1 CHECK (step BETWEEN 1 AND 10), adopted boolean NOT NULL DEFAULT false,
    secret_check bytea NOT NULL CHECK (octet_length(secret_check) = 32),
    recorded_at timestamptz NOT NULL DEFAULT now(), advanced_at timestamptz NOT NULL DEFAULT now(),
    deleted_topics text[] NOT NULL DEFAULT '{}'
        CHECK (array_to_string(deleted_topics, ' ') ~ '^(view\.[a-z][a-z0-9_]*\.v[0-9]+ ?)*$')
);
CREATE INDEX erasure_adopted ON truelog.erasure (id) WHERE adopted AND step < 9;
COMMENT ON TABLE truelog.erasure IS 'The ledger of erasures: one row for each, with its last finished step. adopted: a backup was restored after it';

CREATE TABLE truelog.erasure_reading (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), database oid NOT NULL, server_started timestamptz NOT NULL,
    lacking integer NOT NULL, read_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.erasure_reading IS 'How many erasures of the log the ledger lacks, as of the last reading, and the database and the start of the server that it was read for';

CREATE TABLE truelog.erasure_subject (
    erasure uuid REFERENCES truelog.erasure, field text CHECK (field ~ '^[a-z][a-z0-9_]{0,62}$'),
    hash bytea CHECK (octet_length(hash) = 32), PRIMARY KEY (erasure, field, hash)
);
COMMENT ON TABLE truelog.erasure_subject IS 'Whom an erasure is about: the keyed hashes of the values of these fields';

CREATE TABLE truelog.erasure_end (
    erasure uuid REFERENCES truelog.erasure, topic text CHECK (topic ~ '^[a-z][a-z0-9_]*$'), partition integer,
    topic_id text NOT NULL CHECK (topic_id ~ '^[A-Za-z0-9_+/=-]{1,40}$'), end_offset bigint NOT NULL,
    fields text[] NOT NULL CHECK (array_to_string(fields, ' ') ~ '^[a-z][a-z0-9_]*( [a-z][a-z0-9_]*)*$'),
    PRIMARY KEY (erasure, topic, partition)
);
CREATE INDEX erasure_end_reach ON truelog.erasure_end (topic_id, partition, end_offset);
COMMENT ON TABLE truelog.erasure_end IS 'The first offset of each partition that an erasure does not cover';

CREATE TABLE truelog.erasure_count (
    erasure uuid REFERENCES truelog.erasure, topic text CHECK (topic ~ '^[a-z][a-z0-9_]*$'), partition integer,
    log_day timestamptz, records bigint NOT NULL CHECK (records > 0), PRIMARY KEY (erasure, topic, partition, log_day)
);
COMMENT ON TABLE truelog.erasure_count IS 'How many records of each log day an erasure covers, counted before they are rewritten';
