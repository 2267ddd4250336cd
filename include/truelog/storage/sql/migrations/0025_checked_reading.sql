-- The reading of the event type in which invalid changes were looked for. In another one, all changes are judged again.
ALTER TABLE truelog.capture ADD COLUMN checked_reading integer NOT NULL DEFAULT 0;
