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

-- The histogram of many rows, whose buckets and counts are written one after another. Without MATERIALIZED, each bucket
-- would read the text again.
CREATE OR REPLACE FUNCTION truelog.quantiles_united(written text) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    WITH given AS MATERIALIZED (SELECT ('{' || written || '}')::bigint[] AS numbers)
    SELECT array_agg(v ORDER BY bucket, part)
    FROM (
        SELECT numbers[i] AS bucket, sum(numbers[i + 1])::bigint AS n
        FROM given, generate_series(1, cardinality(numbers), 2) AS i GROUP BY 1
    ) AS counted, LATERAL (VALUES (0, bucket), (1, n)) AS pair(part, v)
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
