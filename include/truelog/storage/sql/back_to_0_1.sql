-- Prepares the database for release 0.1: stop the platform except PostgreSQL, run this file with psql, then start 0.1.
-- docs/alerts.md, "Going back to the previous release", shows the commands. You can run this file more than once.
BEGIN;

-- Alert kinds in alerts, silences and the audit trail get their 0.1 names.
DO $$
DECLARE
    incident text;
BEGIN
    IF to_regclass('truelog.alert_kind_rename') IS NULL THEN RETURN; END IF;
    FOR incident IN
        SELECT format('%s/%s', kind, subject) FROM truelog.alert a JOIN truelog.alert_kind_rename USING (kind)
        WHERE resolved_at IS NULL AND opened_as IS NULL AND EXISTS (SELECT FROM truelog.notification n WHERE n.alert = a.id)
        ORDER BY a.id
    LOOP
        RAISE NOTICE 'Close this incident at the receiver by hand, because 0.1 does not use its key: %', incident;
    END LOOP;
    DROP TRIGGER rename_alert_kind ON truelog.alert;
    DROP FUNCTION truelog.rename_alert_kind();
    DELETE FROM truelog.silence WHERE extends IS NOT NULL;
    PERFORM truelog.rename_alert_kinds(jsonb_object_agg(kind, former), min(renamed_at)) FROM truelog.alert_kind_rename;
    DROP FUNCTION truelog.rename_alert_kinds(jsonb, timestamptz);
    DROP FUNCTION truelog.glob_rest(text, text);
    DROP FUNCTION truelog.glob_class_has(text, text);
    DROP TABLE truelog.alert_kind_rename;
    ALTER TABLE truelog.alert DROP COLUMN opened_as;
    ALTER TABLE truelog.silence DROP COLUMN extends;
END $$;

-- View states and launch reasons get their 0.1 names. The 0.1 migration replaces the SQL views that read them.
DROP TRIGGER IF EXISTS rename_state ON truelog.standing;
DROP FUNCTION IF EXISTS truelog.rename_state();
ALTER TABLE truelog.standing DROP CONSTRAINT IF EXISTS standing_state_check;
UPDATE truelog.standing SET state = CASE state WHEN 'UP_TO_DATE' THEN 'FOLLOWING' ELSE 'STANDING' END WHERE state IN ('UP_TO_DATE', 'STALLED');
ALTER TABLE truelog.standing ADD CONSTRAINT standing_state_check CHECK (state IN ('FOLLOWING', 'STANDING'));
UPDATE truelog.launch SET reason = 'dead' WHERE reason = 'down';

-- `migrate` skips a database whose schema comment is the hash of its statements. The next start must migrate the database.
COMMENT ON SCHEMA truelog IS NULL;
COMMIT;
