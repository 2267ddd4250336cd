-- Staging's own columns have names that no column of a view can have, so a view may have a column `attempt`.
DO $$ DECLARE own record; BEGIN
    FOR own IN
        SELECT c.relname, attname FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid
        WHERE relnamespace = 'stage'::regnamespace AND relkind = 'r' AND attname IN ('attempt', 'row_hash', 'loaded_at')
            AND 3 = (SELECT count(*) FROM pg_attribute o
                WHERE o.attrelid = c.oid AND o.attname IN ('attempt', 'row_hash', 'loaded_at') AND NOT o.attisdropped)
    LOOP
        EXECUTE format('ALTER TABLE stage.%I RENAME COLUMN %I TO %I', own.relname, own.attname, '_' || own.attname);
    END LOOP;
END $$;
