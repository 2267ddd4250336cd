-- Bloom: sorted codes `word * 2^32 + bits`, one for each word of 32 bits that is not empty.
CREATE OR REPLACE FUNCTION truelog.bloom_plus(a bigint[], b bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN a IS NULL THEN b WHEN b IS NULL THEN a ELSE (
        SELECT array_agg(code ORDER BY code)
        FROM (SELECT bit_or(code) AS code FROM unnest(a || b) AS code GROUP BY code >> 32) AS words
    ) END
$$;

-- What readers see of a Bloom filter: everything that `truelog.seen` needs.
DO $$ BEGIN
    CREATE TYPE truelog.bloom AS (hashes integer, bits bigint, codes bigint[]);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- Whether the filter has seen the value. NULL is never seen. A value of another type is asked for as its text.
CREATE OR REPLACE FUNCTION truelog.seen(bloom truelog.bloom, value text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    codes bigint[] := bloom.codes;
    hashed bigint := ('x' || left(md5(value), 16))::bit(64)::bigint;
    first bigint := hashed & 2147483647;
    step bigint := (hashed >> 33 & 2147483647) | 1;
    at bigint; word bigint; code bigint;
BEGIN
    IF value IS NULL OR codes IS NULL THEN RETURN false; END IF;
    FOR i IN 0 .. bloom.hashes - 1 LOOP
        at := (first + i * step) % bloom.bits;
        word := at >> 5;
        code := codes[width_bucket((word << 32) + 4294967295, codes)];  -- the last code of this word or of one before it
        IF code IS NULL OR code >> 32 <> word OR (code >> (at & 31)::integer) & 1 = 0 THEN RETURN false; END IF;
    END LOOP;
    RETURN true;
END
$$;
