-- Groups that a view leaves out, because its fold fails on them.
CREATE TABLE truelog.failed_group (
    view text, version integer, "group" jsonb, error text NOT NULL, noticed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (view, version, "group")
);
COMMENT ON TABLE truelog.failed_group IS 'Groups on whose inputs the fold of their view failed. They have no rows';
