-- Who asks the API about a view.
CREATE TABLE truelog.view_reader (
    view text, reader text, day date, answers bigint NOT NULL, last_at timestamptz NOT NULL,
    PRIMARY KEY (view, reader, day)
);
COMMENT ON TABLE truelog.view_reader IS 'How many answers about each view the holder of each API key got on each day';
