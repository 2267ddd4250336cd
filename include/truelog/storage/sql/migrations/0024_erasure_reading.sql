-- The output topics that an erasure has deleted, and whether a restored database lacks erasures of the log.
ALTER TABLE truelog.erasure ADD COLUMN deleted_topics text[] NOT NULL DEFAULT '{}'
    CHECK (array_to_string(deleted_topics, ' ') ~ '^(view\.[a-z][a-z0-9_]*\.v[0-9]+ ?)*$');
CREATE INDEX erasure_adopted ON truelog.erasure (id) WHERE adopted AND step < 9;
CREATE TABLE truelog.erasure_reading (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), database oid NOT NULL, server_started timestamptz NOT NULL,
    lacking integer NOT NULL, read_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.erasure_reading IS 'How many erasures of the log the ledger lacks, as of the last reading, and the database and the start of the server that it was read for';
