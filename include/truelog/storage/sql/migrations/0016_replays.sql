-- Experimental copies of views have a schema of their own, so that nothing of production contains them.
CREATE SCHEMA IF NOT EXISTS replay;
CREATE TABLE truelog.view_replay (
    replay text PRIMARY KEY, view text NOT NULL, version integer NOT NULL, fingerprint text NOT NULL, doer text NOT NULL,
    begins jsonb NOT NULL, ends jsonb NOT NULL,  -- offsets by topic and partition: from the first of these to before the others
    tables text[] NOT NULL, relations text[] NOT NULL,
    began_at timestamptz NOT NULL DEFAULT now(), built_at timestamptz, drop_at timestamptz NOT NULL,
    left_out bigint NOT NULL DEFAULT 0, left_out_error text  -- the records on which its code fails
);
COMMENT ON TABLE truelog.view_replay IS 'Experimental copies of views: the records that each has counted, and when it is dropped';
