-- Keys that may load the archive's tables by its REST catalog.
ALTER TABLE truelog.api_key DROP CONSTRAINT api_key_role_check;
ALTER TABLE truelog.api_key ADD CONSTRAINT api_key_role_check CHECK (
    role IN ('producer', 'reader', 'admin', 'browser', 'editor', 'archivist')
);
