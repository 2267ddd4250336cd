-- Keys that may change rules, searches and notification rules.
ALTER TABLE truelog.api_key DROP CONSTRAINT api_key_role_check;
ALTER TABLE truelog.api_key ADD CONSTRAINT api_key_role_check CHECK (
    role IN ('producer', 'reader', 'admin', 'browser', 'editor')
);
