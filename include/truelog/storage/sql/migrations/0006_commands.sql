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
