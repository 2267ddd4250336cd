-- The words of a text, by the rule of `truelog.text.words`. `truelog.text.functions` puts characters for each <name>.

-- A word without case and accents.
CREATE OR REPLACE FUNCTION truelog.folded(word text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    word := regexp_replace(normalize(word, NFKD) COLLATE "C", '[<not_compared>]', '', 'g');
    IF word COLLATE "C" ~ '[ßẞ<capitals>]' THEN  -- `translate` takes long
        word := translate(replace(replace(word, 'ß', 'ss'), 'ẞ', 'ss'), '<capitals>', '<small>');
    END IF;
    RETURN normalize(word, NFKC);
END
$$;

-- The words of a run of letters: every two neighbours of letters without spaces, or else the run.
CREATE OR REPLACE FUNCTION truelog.words_of_run(run text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    letters text[];
BEGIN
    IF octet_length(run) = length(run) THEN
        RETURN ARRAY[lower(run COLLATE "C")];
    END IF;
    letters := ARRAY(SELECT truelog.folded(m[1]) FROM regexp_matches(run COLLATE "C", '[<unspaced>][<mark>]*', 'g') AS m);
    RETURN CASE cardinality(letters)
        WHEN 0 THEN array_remove(ARRAY[truelog.folded(run)], '')
        WHEN 1 THEN letters
        ELSE ARRAY(SELECT letters[i] || letters[i + 1] FROM generate_series(1, cardinality(letters) - 1) AS i)
    END;
END
$$;

-- The words of a text, in their order. NULL has none.
CREATE OR REPLACE FUNCTION truelog.words(searched text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF octet_length(searched) = length(searched) THEN
        RETURN ARRAY(SELECT m[1] FROM regexp_matches(lower(searched COLLATE "C"), '[a-z0-9]+', 'g') AS m);
    END IF;
    searched := normalize(regexp_replace(searched COLLATE "C", '[^<assigned>]', ' ', 'g'), NFKC);
    RETURN ARRAY(
        SELECT word
        FROM regexp_matches(searched COLLATE "C", '(?:[<unspaced>][<mark>]*)+|[<spaced>]+', 'g') WITH ORDINALITY AS r(m, run),
            unnest(truelog.words_of_run(m[1])) WITH ORDINALITY AS w(word, place)
        ORDER BY run, place
    );
END
$$;

-- The stems of a text's words, with their places. A word such as "the" has none, and neither has a word of over 2,046 bytes.
CREATE OR REPLACE FUNCTION truelog.word_stems(searched text, OUT stem text, OUT place integer) RETURNS SETOF record
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT stem, n::integer FROM unnest(truelog.words(searched)) WITH ORDINALITY AS w(word, n)
    CROSS JOIN LATERAL unnest(ts_lexize('pg_catalog.english_stem', word)) AS stem
    WHERE octet_length(stem) <= 2046 ORDER BY n
$$;

-- The words of a text as a part of a document, which `truelog.word_query` finds. The weight is A, B, C or D.
CREATE OR REPLACE FUNCTION truelog.word_vector(searched text, weight text) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(string_agg(format('''%s'':%s%s', stem, least(place, 16383), weight), ' '), '')::tsvector
    FROM truelog.word_stems(searched)
$$;

-- What people ask a search engine for: `kafka or spark -java "data lake"`.
CREATE OR REPLACE FUNCTION truelog.word_query(asked text) RETURNS tsquery
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    token text;
    word record;
    last integer;
    term tsquery;  -- of this token: a word, or words that follow each other
    every tsquery;  -- the terms since the last "or"
    found tsquery;  -- the terms before it
BEGIN
    FOR token IN SELECT m[1] FROM regexp_matches(normalize(asked, NFKC) COLLATE "C", '-?"[^"]*"?|[^\s"]+', 'g') AS m LOOP
        IF lower(token) = 'or' THEN
            found := coalesce(found || every, every, found);
            every := NULL;
            CONTINUE;
        END IF;
        term := NULL;
        FOR word IN SELECT stem, place FROM truelog.word_stems(token) LOOP
            term := CASE WHEN term IS NULL THEN format('''%s''', word.stem)::tsquery
                ELSE tsquery_phrase(term, format('''%s''', word.stem)::tsquery, word.place - last) END;
            last := word.place;
        END LOOP;
        IF token LIKE '-%' THEN
            term := !!term;
        END IF;
        every := coalesce(every && term, term, every);
    END LOOP;
    RETURN coalesce(found || every, every, found, '');
END
$$;
