-- A database without `truelog.migration` was made before the migrations had numbers, when each start executed one file.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'truelog.lag_sample'::regclass AND attname = 'verdicts') THEN
        RAISE EXCEPTION 'The database has the schema of a commit before 335e85e. Run `truelog up` of commit 8ba601a once, and then this release.';
    END IF;
END $$;

CREATE TABLE truelog.migration (number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());
COMMENT ON TABLE truelog.migration IS 'The migrations that this database has';

-- Only one formula of fingerprints is left. A table that only the earlier formula has checked was made by other code.
UPDATE truelog.view SET fingerprint = coalesce(fingerprint_2, fingerprint);
ALTER TABLE truelog.view DROP COLUMN fingerprint_2;

-- Nothing writes the earlier names of launch reasons, view states and alert kinds.
UPDATE truelog.launch SET reason = CASE reason WHEN 'dead' THEN 'down' ELSE 'restart_pending' END WHERE reason IN ('dead', 'wished');
DROP TRIGGER rename_state ON truelog.standing;
DROP FUNCTION truelog.rename_state();
DROP TRIGGER rename_alert_kind ON truelog.alert;
DROP FUNCTION truelog.rename_alert_kind(), truelog.rename_alert_kinds(jsonb, timestamptz), truelog.glob_rest(text, text), truelog.glob_class_has(text, text);
DROP TABLE truelog.alert_kind_rename;
ALTER TABLE truelog.alert DROP COLUMN opened_as;
ALTER TABLE truelog.silence DROP COLUMN extends;
