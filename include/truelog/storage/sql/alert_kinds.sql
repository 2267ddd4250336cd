-- Release 0.2 renamed the alert kinds. This file renames the kinds in a 0.1 database once; `back_to_0_1.sql` restores them.
ALTER TABLE truelog.alert ADD COLUMN IF NOT EXISTS opened_as text;
COMMENT ON COLUMN truelog.alert.opened_as IS 'Former kind, under which receivers were notified of the incident before the rename';
ALTER TABLE truelog.silence ADD COLUMN IF NOT EXISTS extends bigint;
COMMENT ON COLUMN truelog.silence.extends IS 'The silence whose pattern matched a former kind; this row covers the new name and ends with that silence';

CREATE TABLE IF NOT EXISTS truelog.alert_kind_rename (
    former text PRIMARY KEY, kind text NOT NULL UNIQUE, renamed_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE truelog.alert_kind_rename IS 'Former and current names of alert kinds; empty until the rename has run';

-- True if a letter is in a character class of a shell pattern, such as `a-z_`.
CREATE OR REPLACE FUNCTION truelog.glob_class_has(class text, letter text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    i integer := 1;
BEGIN
    WHILE i <= length(class) LOOP
        IF substr(class, i + 1, 1) = '-' AND i + 2 <= length(class) THEN
            IF letter COLLATE "C" BETWEEN substr(class, i, 1) AND substr(class, i + 2, 1) THEN RETURN true; END IF;
            i := i + 3;
        ELSE
            IF letter = substr(class, i, 1) THEN RETURN true; END IF;
            i := i + 1;
        END IF;
    END LOOP;
    RETURN false;
END $$;

-- The rest of a shell pattern after it has matched a prefix, with a row for each way to match. Patterns work the way they
-- do in Python's `fnmatch`.
CREATE OR REPLACE FUNCTION truelog.glob_rest(pattern text, prefix text) RETURNS SETOF text LANGUAGE sql IMMUTABLE AS $$
    WITH RECURSIVE walk (rest, ahead) AS (
        SELECT pattern, prefix
        UNION
        SELECT step.rest, step.ahead
        FROM walk CROSS JOIN LATERAL (
            SELECT coalesce(substring(walk.rest FROM '^\[(?:!.|[^!])[^]]*\]'), left(walk.rest, 1)) AS token, left(walk.ahead, 1) AS letter
        ) next CROSS JOIN LATERAL (
            SELECT CASE
                WHEN token IN ('*', '?') THEN true
                WHEN token LIKE '[!%' AND length(token) > 1 THEN NOT truelog.glob_class_has(substr(token, 3, length(token) - 3), letter)
                WHEN length(token) > 1 THEN truelog.glob_class_has(substr(token, 2, length(token) - 2), letter)
                ELSE token = letter
            END AS matches
        ) test CROSS JOIN LATERAL (VALUES
            (CASE WHEN token = '*' THEN substr(walk.rest, 2) END, walk.ahead),
            (CASE WHEN matches THEN CASE token WHEN '*' THEN walk.rest ELSE substr(walk.rest, length(token) + 1) END END, substr(walk.ahead, 2))
        ) step (rest, ahead)
        WHERE walk.rest <> '' AND walk.ahead <> '' AND step.rest IS NOT NULL
    )
    SELECT rest FROM walk WHERE ahead = ''
$$;

-- Renames kinds in alerts, silences and the audit trail. Only silences made after `made_after` are extended.
CREATE OR REPLACE FUNCTION truelog.rename_alert_kinds(renames jsonb, made_after timestamptz) RETURNS void LANGUAGE sql AS $$
    -- An incident that is open under both names would violate the unique index, so its former alert is resolved.
    WITH doubled AS (
        UPDATE truelog.alert a SET resolved_at = now() FROM jsonb_each_text(renames) r (was, becomes)
        WHERE a.kind = was AND a.resolved_at IS NULL AND EXISTS (
            SELECT FROM truelog.alert b WHERE (b.kind, b.subject) = (becomes, a.subject) AND b.resolved_at IS NULL
        ) RETURNING a.id, a.cause
    )
    INSERT INTO truelog.notification (receiver, alert, says, cause)
    SELECT DISTINCT n.receiver, d.id, 'resolved', d.cause FROM doubled d JOIN truelog.notification n ON n.alert = d.id;

    UPDATE truelog.alert a SET kind = becomes,
        opened_as = CASE WHEN EXISTS (SELECT FROM truelog.notification n WHERE n.alert = a.id) THEN was END
    FROM jsonb_each_text(renames) r (was, becomes) WHERE a.kind = was;

    UPDATE truelog.operation o SET subject = becomes || substr(subject, length(was) + 1)
    FROM jsonb_each_text(renames) r (was, becomes)
    WHERE o.kind IN ('silence', 'unsilence') AND starts_with(subject, was || '/');

    UPDATE truelog.silence s SET pattern = becomes || substr(pattern, length(was) + 1)
    FROM jsonb_each_text(renames) r (was, becomes) WHERE starts_with(pattern, was || '/');

    -- A pattern such as `st*/x` must continue to cover the kinds that it covered. No subject contains a slash.
    INSERT INTO truelog.silence (pattern, until, made_by, why, made_at, extends)
    SELECT becomes || '/' || rest, until, made_by, why, made_at, id
    FROM truelog.silence s CROSS JOIN jsonb_each_text(renames) r (was, becomes) CROSS JOIN LATERAL (
        SELECT rest FROM truelog.glob_rest(pattern, was || '/') g (rest)
        EXCEPT SELECT rest FROM truelog.glob_rest(pattern, becomes || '/') g (rest)
    ) lost
    WHERE until > now() AND made_at > made_after AND extends IS NULL AND rest NOT LIKE '%/%'
    ORDER BY id, becomes, rest;
$$;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM truelog.alert_kind_rename) THEN
        INSERT INTO truelog.alert_kind_rename (former, kind) VALUES
            ('down', 'application_down'), ('starved', 'no_input'), ('restarting', 'application_restarting'),
            ('falling_off', 'retention_risk'), ('rewound', 'positions_rewound'), ('stands', 'stalled'), ('behind', 'lagging'),
            ('blind', 'lag_unknown'), ('different', 'view_different'), ('undecided', 'reconcile_inconclusive'),
            ('unproved', 'certificate_stale'), ('unsound', 'archive_corrupt'), ('unaudited', 'archive_unaudited'),
            ('unusual', 'quality_anomaly'), ('disk', 'disk_low'), ('unwatched', 'alert_source_down');
        PERFORM truelog.rename_alert_kinds(jsonb_object_agg(former, kind), '-infinity') FROM truelog.alert_kind_rename;
    END IF;
END $$;

-- A 0.1 service that is still running while its successor starts continues to write former kinds.
CREATE OR REPLACE FUNCTION truelog.rename_alert_kind() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.kind := coalesce((SELECT kind FROM truelog.alert_kind_rename WHERE former = NEW.kind), NEW.kind);
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER rename_alert_kind BEFORE INSERT ON truelog.alert FOR EACH ROW EXECUTE FUNCTION truelog.rename_alert_kind();
