-- The version that a share of the API's readers gets before a cut-over.
CREATE TABLE truelog.version_share (
    view text PRIMARY KEY, version integer NOT NULL, percent integer NOT NULL CHECK (percent BETWEEN 1 AND 100),
    since timestamptz NOT NULL DEFAULT now(), FOREIGN KEY (view, version) REFERENCES truelog.view
);
COMMENT ON TABLE truelog.version_share IS 'The version of a view that a share of the API''s readers gets, and the percentage of its readers. At most one version of each view';
