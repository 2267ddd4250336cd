-- Captured tables: a new snapshot begins a new epoch.
CREATE TABLE truelog.capture (
    event_type text PRIMARY KEY, epoch integer NOT NULL DEFAULT 1, refused text, since timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.capture IS 'The captured tables: the epoch of each, and why a table is not captured';
