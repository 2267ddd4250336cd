-- `id` is the id of the event. Constraints keep free text out, because a ledger that names the person is a copy.
CREATE TABLE truelog.erasure (
    id uuid PRIMARY KEY, number bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    step smallint NOT NULL DEFAULT 1 CHECK (step BETWEEN 1 AND 10), adopted boolean NOT NULL DEFAULT false,
    secret_check bytea NOT NULL CHECK (octet_length(secret_check) = 32),
    recorded_at timestamptz NOT NULL DEFAULT now(), advanced_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.erasure IS 'The ledger of erasures: one row for each, with its last finished step. adopted: a backup was restored after it';

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
