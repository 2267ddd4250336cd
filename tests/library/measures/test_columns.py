"""Texts that are too long for a key are shortened, and neighbours in an array are combined."""

import re
from itertools import groupby
from random import Random

from pyspark.sql import functions as F

from tests.beds.lab import Lab
from truelog.measures.columns import bounded, combined

SEED = 20_261_126
LIMITS = (100, 666, 2_000)
SHORTENED = re.compile(" …[0-9a-f]{32}$")
LETTERS = ("a", "é", "東", "\U0001f600", " ", "…", "/")


def texts() -> list[str]:
    """Texts about as long as the limits. Many differ from another one in one letter, anywhere."""
    chosen, made = Random(SEED), {"", "a"}
    for limit in LIMITS:
        for _ in range(300):
            letter = chosen.choice(LETTERS)
            count = (limit + chosen.randint(-40, 40)) // len(letter.encode())
            one = letter * count
            place = chosen.randrange(count)
            made |= {one, one + letter, f"{one[:place]}#{one[place + 1 :]}", f"{one[:place]}{one[place + 1 :]}#"}
    return sorted(made)


def test_law_texts_that_differ_stay_different(lab: Lab) -> None:
    every = texts()
    frame = lab.spark.createDataFrame([(text,) for text in every], "text string")
    rows = frame.select("text", *(bounded(F.col("text"), limit).alias(str(limit)) for limit in LIMITS)).collect()
    for limit in LIMITS:
        found = {row["text"]: row[str(limit)] for row in rows}
        assert len({*found.values()}) == len(every)
        assert all(len(short.encode()) <= limit for short in found.values())
        assert all(text == short or SHORTENED.search(short) for text, short in found.items())
        assert {text == short for text, short in found.items()} == {True, False}


def test_law_neighbours_are_combined(lab: Lab) -> None:
    chosen = Random(SEED)
    drawn = [[], *(sorted(chosen.choices(range(50), k=chosen.randint(1, 40))) for _ in range(200)), None]
    frame = lab.spark.createDataFrame([(each,) for each in drawn], "numbers array<bigint>")
    sums = combined(
        F.col("numbers"),
        lambda n: n % 10,
        lambda ns: F.struct(ns[0], F.aggregate(ns, F.lit(0).cast("bigint"), lambda a, b: a + b)),
    )
    for [numbers, found] in frame.select("numbers", sums).collect():
        runs = [list(run) for _, run in groupby(numbers or [], lambda n: n % 10)]
        assert found == ([(run[0], sum(run)) for run in runs] or None)
