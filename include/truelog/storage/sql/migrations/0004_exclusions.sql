-- A view may exclude only a small share of the records that it has read lately.
ALTER TABLE truelog.merge_tally ADD COLUMN records bigint NOT NULL DEFAULT 0, ADD COLUMN hour timestamptz,
    ADD COLUMN hour_records bigint NOT NULL DEFAULT 0, ADD COLUMN earlier_records bigint NOT NULL DEFAULT 0;

-- An exclusion is of one topic and one reading, and comparisons prove it.
ALTER TABLE truelog.exclusion ADD COLUMN topic_id text, ADD COLUMN reading integer,
    ADD COLUMN merged bigint NOT NULL DEFAULT 0, ADD COLUMN proof text, ADD COLUMN proved_at timestamptz,
    ADD COLUMN refuted boolean NOT NULL DEFAULT false;
UPDATE truelog.exclusion e SET topic_id = p.topic_id, reading = p.reading FROM truelog.view_position p
    WHERE (e.view, e.version, e.topic, e.partition) = (p.view, p.version, p.topic, p.partition);
DELETE FROM truelog.exclusion WHERE topic_id IS NULL;  -- of records that no row of the view counts
ALTER TABLE truelog.exclusion DROP CONSTRAINT exclusion_pkey, ALTER COLUMN topic SET NOT NULL,
    ADD PRIMARY KEY (view, version, topic_id, partition, "offset", reading);
