-- The measures in PostgreSQL. They produce exactly the same values as in Spark. NULL is the zero of every measure.

-- Distinct: sorted codes `register * 64 + rank`, one for each register in use. The higher rank wins.
CREATE OR REPLACE FUNCTION truelog.distinct_plus(a integer[], b integer[]) RETURNS integer[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN a IS NULL THEN b WHEN b IS NULL THEN a ELSE (
        SELECT array_agg(code ORDER BY code)
        FROM (SELECT max(code) AS code FROM unnest(a || b) AS code GROUP BY code >> 6) AS registers
    ) END
$$;

-- Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), algorithm 6: no empirical constants.
-- ranks[k+1] counts the registers of rank k, 0 <= k <= 65 - precision.
CREATE OR REPLACE FUNCTION truelog.distinct_estimate(codes integer[], "precision" integer) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    m double precision := 1 << "precision";
    highest integer := 65 - "precision";
    ranks double precision[] := array_fill(0::double precision, ARRAY[highest + 1]);
    code integer; x double precision; y double precision; term double precision; z double precision;
BEGIN
    IF codes IS NULL THEN RETURN 0; END IF;
    FOREACH code IN ARRAY codes LOOP
        ranks[(code & 63) + 1] := ranks[(code & 63) + 1] + 1;
    END LOOP;
    ranks[1] := m - cardinality(codes);

    x := 1 - ranks[highest + 1] / m;  -- tau: registers that have run out of bits
    IF x = 0 OR x = 1 THEN
        z := 0;
    ELSE
        y := 1; term := 1 - x;
        LOOP
            x := sqrt(x); y := y / 2; z := term; term := term - (1 - x) ^ 2 * y;
            EXIT WHEN term = z;
        END LOOP;
        z := term / 3;
    END IF;
    z := m * z;
    FOR k IN REVERSE highest - 1 .. 1 LOOP
        z := (z + ranks[k + 1]) / 2;
    END LOOP;

    x := ranks[1] / m;  -- sigma: registers that were never hit
    IF x = 1 THEN RETURN 0; END IF;
    y := 1; term := x;
    LOOP
        x := x * x; EXIT WHEN x * y = 0 OR term + x * y = term;
        term := term + x * y; y := y * 2;
    END LOOP;
    z := z + m * term;
    RETURN round(m * m / (2 * ln(2.0::double precision) * z));
END
$$;

-- Quantiles: [bucket, n, bucket, n, …], buckets in order.
CREATE OR REPLACE FUNCTION truelog.quantiles_plus(a bigint[], b bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN a IS NULL THEN b WHEN b IS NULL THEN a ELSE (
        SELECT array_agg(v ORDER BY bucket, part)
        FROM (
            SELECT both_sides[i] AS bucket, sum(both_sides[i + 1])::bigint AS n
            FROM (SELECT a || b AS both_sides) AS s, generate_series(1, cardinality(a || b), 2) AS i
            GROUP BY 1
        ) AS counted, LATERAL (VALUES (0, bucket), (1, n)) AS pair(part, v)
    ) END
$$;

-- The middle of a bucket. A bucket below 2^bits contains a single value.
CREATE OR REPLACE FUNCTION truelog.bucket_middle(bucket bigint, bits integer) RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT sign(bucket) * CASE WHEN shift <= 0 THEN abs(bucket)::numeric
        ELSE ((abs(bucket) - (shift << bits))::numeric + 0.5) * (2::numeric ^ shift) - 0.5 END
    FROM (SELECT (abs(bucket) >> bits) - 1 AS shift) AS s
$$;

-- The middle of a bucket of floats, which has the exponent and the first bits of the mantissa.
CREATE OR REPLACE FUNCTION truelog.float_bucket_middle(bucket bigint, bits integer) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN bucket = 0 THEN 0::double precision
        WHEN exponent = 2047 THEN CASE WHEN part = 0 THEN sign(bucket) * 'Infinity'::double precision ELSE 'NaN' END
        WHEN exponent = 0 THEN sign(bucket) * 2::double precision ^ -1022 * ((part + 0.5) / (1 << bits))
        ELSE sign(bucket) * 2::double precision ^ (exponent - 1023) * (1 + (part + 0.5) / (1 << bits)) END
    FROM (SELECT (abs(bucket) >> bits)::integer AS exponent, (abs(bucket) & ((1 << bits) - 1))::double precision AS part) AS s
$$;

-- The bucket of the value at rank ceil(q * n).
CREATE OR REPLACE FUNCTION truelog.bucket_at(histogram bigint[], q double precision) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT bucket FROM (
        SELECT histogram[i] AS bucket, sum(histogram[i + 1]) OVER (ORDER BY i) AS upto, sum(histogram[i + 1]) OVER () AS n
        FROM generate_series(1, cardinality(histogram), 2) AS i
    ) AS cumulated
    WHERE upto >= greatest(1, ceil(q * n)) ORDER BY upto LIMIT 1
$$;

-- The value at rank ceil(q * n), as the middle of its bucket.
CREATE OR REPLACE FUNCTION truelog.quantile(histogram bigint[], q double precision, bits integer) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT round(truelog.bucket_middle(truelog.bucket_at(histogram, q), bits))::bigint
$$;

CREATE OR REPLACE FUNCTION truelog.quantile_of_floats(histogram bigint[], q double precision, bits integer) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT truelog.float_bucket_middle(truelog.bucket_at(histogram, q), bits)
$$;

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
