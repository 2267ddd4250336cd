-- Whether a view depends on the order of a key's events. Its topics must not get more partitions.
ALTER TABLE truelog.view ADD COLUMN needs_order boolean;

-- Clocks that differed from the archive's ticks, which explain rows that expired too early.
CREATE TABLE truelog.wrong_clock (
    topic_id text, time timestamptz, found_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (topic_id, time)
);
COMMENT ON TABLE truelog.wrong_clock IS 'Times that the stored ticks gave and the archive''s ticks did not; comparisons have replaced the stored ticks';
