-- Keys that a browser holds: the origins of their pages, and the event types that they may send.
ALTER TABLE truelog.api_key ADD COLUMN origins text[], ADD COLUMN event_types text[];
ALTER TABLE truelog.api_key DROP CONSTRAINT api_key_role_check;
ALTER TABLE truelog.api_key ADD CONSTRAINT api_key_role_check CHECK (role IN ('producer', 'reader', 'admin', 'browser'));
ALTER TABLE truelog.api_key ADD CONSTRAINT api_key_check CHECK (
    (role = 'browser') = (origins IS NOT NULL) AND (role = 'browser') = (event_types IS NOT NULL)
);
