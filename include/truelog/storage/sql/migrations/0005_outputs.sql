-- Views may publish their changed and removed rows.
CREATE TABLE truelog.output (
    view text, version integer,
    number bigint NOT NULL DEFAULT 0,  -- of the last row of the outbox. Only a session that has locked the view's row draws one
    beginning uuid, first bigint NOT NULL,  -- the whole table begins with this number; NULL if the view does not publish
    sent bigint NOT NULL DEFAULT 0, trouble text NOT NULL DEFAULT '',  -- how far the relay is, and why it cannot go on
    PRIMARY KEY (view, version)
);
COMMENT ON TABLE truelog.output IS 'The views that publish their changes. A row outlives its output, because numbers never repeat';

CREATE TABLE truelog.output_step (
    view text, version integer, last bigint, id uuid NOT NULL DEFAULT gen_random_uuid(), positions jsonb NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (view, version, last)
);
COMMENT ON TABLE truelog.output_step IS 'The transactions that changed a published view, with the number of the last row of each';

CREATE TABLE truelog.outbox (
    view text, version integer, number bigint, step bigint NOT NULL, key text NOT NULL, value text,
    PRIMARY KEY (view, version, number)
);
COMMENT ON TABLE truelog.outbox IS 'The changed rows of published views, in order: key and row as JSON, without a value if the row vanished';

CREATE TABLE truelog.relay (one boolean PRIMARY KEY DEFAULT true CHECK (one), looked_at timestamptz NOT NULL);
COMMENT ON TABLE truelog.relay IS 'When the relay service last looked for rows to publish; at most one row';
