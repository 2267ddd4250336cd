-- Two versions of a view run side by side until readers move from one to the other.
ALTER TABLE truelog.view ADD COLUMN source text, ADD COLUMN definitions text[], ADD COLUMN pinned text,
    ADD COLUMN held boolean NOT NULL DEFAULT false;
ALTER TABLE truelog.standing DROP CONSTRAINT standing_pkey;
ALTER TABLE truelog.standing ALTER COLUMN view SET NOT NULL;
ALTER TABLE truelog.standing ADD COLUMN declared boolean NOT NULL DEFAULT true;
ALTER TABLE truelog.standing ADD UNIQUE NULLS NOT DISTINCT (view, version);
ALTER TABLE truelog.standing DROP CONSTRAINT standing_state_check;
ALTER TABLE truelog.standing ADD CONSTRAINT standing_state_check CHECK (state IN ('UP_TO_DATE', 'STALLED', 'UNBUILT'));
CREATE UNIQUE INDEX standing_declared ON truelog.standing (view) WHERE declared;
COMMENT ON TABLE truelog.standing IS 'Whether each version of a view that runs is up to date with the log, stalled, or waits until it is built, and why; written by the view''s application';
