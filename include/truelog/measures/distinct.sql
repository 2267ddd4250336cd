-- Distinct: sorted codes `register * 64 + rank`, one for each register in use. The higher rank wins. A small batch changes
-- a few registers of a row that has thousands: they are found in the sorted codes, and only new registers make it sort them.
CREATE OR REPLACE FUNCTION truelog.distinct_plus(a integer[], b integer[]) RETURNS integer[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    merged integer[] := a; added integer[] := '{}'; code integer; place integer;
BEGIN
    IF a IS NULL THEN RETURN b; END IF;
    IF cardinality(b) > 64 THEN  -- more searches would take longer than to sort everything
        RETURN (
            SELECT array_agg(registers.code ORDER BY registers.code)
            FROM (SELECT max(each) AS code FROM unnest(a || b) AS each GROUP BY each >> 6) AS registers
        );
    END IF;
    FOREACH code IN ARRAY coalesce(b, '{}') LOOP
        place := width_bucket(code | 63, a);  -- the last code of this register or of one before it
        IF place > 0 AND a[place] >> 6 = code >> 6 THEN
            merged[place] := greatest(a[place], code);
        ELSE
            added := added || code;
        END IF;
    END LOOP;
    IF added = '{}' THEN RETURN merged; END IF;
    RETURN (SELECT array_agg(each ORDER BY each) FROM unnest(merged || added) AS each);
END
$$;

-- The union of the codes of many rows, which are written one after another. An aggregate over `distinct_plus` would sort
-- the codes again for each row.
CREATE OR REPLACE FUNCTION truelog.distinct_united(written text) RETURNS integer[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT array_agg(code ORDER BY code) FROM (
        SELECT max(code) AS code FROM unnest(('{' || written || '}')::integer[]) AS code GROUP BY code >> 6
    ) AS registers
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
