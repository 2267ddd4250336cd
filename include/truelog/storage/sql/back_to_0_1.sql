-- Prepares the database for release 0.1: stop the platform, run this file with psql, then start 0.1.
-- Every statement may run again on a database that is prepared already.

-- States of views and reasons of launches get the names that 0.1 knows. Its own migration replaces the views that read them.
DROP TRIGGER IF EXISTS rename_state ON truelog.standing;
DROP FUNCTION IF EXISTS truelog.rename_state();
ALTER TABLE truelog.standing DROP CONSTRAINT IF EXISTS standing_state_check;
UPDATE truelog.standing SET state = CASE state WHEN 'UP_TO_DATE' THEN 'FOLLOWING' ELSE 'STANDING' END WHERE state IN ('UP_TO_DATE', 'STALLED');
ALTER TABLE truelog.standing ADD CONSTRAINT standing_state_check CHECK (state IN ('FOLLOWING', 'STANDING'));
UPDATE truelog.launch SET reason = 'dead' WHERE reason = 'down';
