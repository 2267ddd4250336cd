-- What the watch knows about each captured table: invalid changes, the last comparison with the table itself,
-- and how fast the log that its slot retains grows.
ALTER TABLE truelog.capture ADD COLUMN checked_offset bigint NOT NULL DEFAULT 0;
ALTER TABLE truelog.capture ADD COLUMN unjudged bigint NOT NULL DEFAULT 0;
-- A table that was captured before this release has never been compared: its two days begin now.
ALTER TABLE truelog.capture ADD COLUMN compared_from timestamptz NOT NULL DEFAULT now();
ALTER TABLE truelog.capture ADD COLUMN compared_at timestamptz;
ALTER TABLE truelog.capture ADD COLUMN comparison text;
ALTER TABLE truelog.capture ADD COLUMN comparison_reason text;
ALTER TABLE truelog.capture ADD COLUMN equal_at timestamptz;
ALTER TABLE truelog.capture ADD COLUMN retained_at timestamptz;
ALTER TABLE truelog.capture ADD COLUMN retained bigint;
ALTER TABLE truelog.capture ADD COLUMN growth double precision;
CREATE TABLE truelog.invalid_change (
    event_type text, key text, place text NOT NULL, reason text NOT NULL, since timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event_type, key)
);
COMMENT ON TABLE truelog.invalid_change IS 'The rows of captured tables whose last change is invalid, with the reason';
