-- Questions of applications about the past of a view. A job answers them, because the past is a rebuild.
CREATE TABLE truelog.past_question (
    digest text PRIMARY KEY,  -- of the view, its version, the time, and what was asked
    view text NOT NULL, version integer NOT NULL, at timestamptz NOT NULL, asked jsonb NOT NULL, asker text NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(), tries integer NOT NULL DEFAULT 0,  -- of the job
    answered_at timestamptz, status integer, said jsonb, rows text[],  -- the rows as JSON, as PostgreSQL writes them
    CHECK ((answered_at IS NULL) = (status IS NULL))
);
CREATE INDEX past_question_waiting ON truelog.past_question (asked_at) WHERE answered_at IS NULL;
COMMENT ON TABLE truelog.past_question IS 'What applications asked about the past of views, and the answers';
