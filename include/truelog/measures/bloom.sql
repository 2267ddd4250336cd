-- Bloom: sorted codes `word * 2^32 + bits`, one for each word of 32 bits that is not empty. A small batch changes a few
-- words of a row that has thousands: they are found in the sorted codes, and only new words make it sort them.
CREATE OR REPLACE FUNCTION truelog.bloom_plus(a bigint[], b bigint[]) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    merged bigint[] := a; added bigint[] := '{}'; code bigint; place integer;
BEGIN
    IF a IS NULL THEN RETURN b; END IF;
    IF cardinality(b) > 64 THEN  -- more searches would take longer than to sort everything
        RETURN (
            SELECT array_agg(words.code ORDER BY words.code)
            FROM (SELECT bit_or(each) AS code FROM unnest(a || b) AS each GROUP BY each >> 32) AS words
        );
    END IF;
    FOREACH code IN ARRAY coalesce(b, '{}') LOOP
        place := width_bucket(code | 4294967295, a);  -- the last code of this word or of one before it
        IF place > 0 AND a[place] >> 32 = code >> 32 THEN
            merged[place] := a[place] | code;
        ELSE
            added := added || code;
        END IF;
    END LOOP;
    IF added = '{}' THEN RETURN merged; END IF;
    RETURN (SELECT array_agg(each ORDER BY each) FROM unnest(merged || added) AS each);
END
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
