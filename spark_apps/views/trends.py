"""Trends: words that people search for and pages that they click on, by hour, compared with the hour before.

A client that gets no answer sends its event again. Within an hour, only the first of these events counts.
`truelog.text.words` says what a word is. Searches of event versions without `query_words` have the texts between spaces
that have a letter or a digit, in small letters, until `truelog events rejudge search`.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from truelog import Meaning, Sum, View
from truelog.text.characters import java_class

# Java's own classes of letters and digits depend on its release. Those of `truelog.text` lack characters of full width.
_OF_WORDS = rf"{java_class('spaced')}{java_class('unspaced')}\uff10-\uff19\uff41-\uff5a\uff66-\uffdc"
_LETTER_OR_DIGIT = rf"[0-9a-z]|[{_OF_WORDS}&&[^{java_class('mark')}]]"

# Each term of an hour beside its number in the hour before. A term that is new has 0 there.
RISING = """
SELECT now.hour, now.kind, now.term, now.number, coalesce(before.number, 0) AS before,
    now.number - coalesce(before.number, 0) AS rise
FROM {view} AS now LEFT JOIN {view} AS before
ON before.hour = now.hour - interval '1 hour' AND (before.kind, before.term) = (now.kind, now.term)
"""


def transform(search: DataFrame, click: DataFrame) -> DataFrame:
    """One row per event and term: each word of a query once, or the clicked URL."""
    # A query without words also has no `query_words`.
    others = F.filter(F.split(F.lower("query"), r"\s+"), lambda text: text.rlike(_LETTER_OR_DIGIT))
    words = F.array_distinct(F.coalesce(F.split("query_words", " "), others))
    searched = search.select(_hour(), F.lit("word").alias("kind"), F.explode(words).alias("term"))
    clicked = click.select(_hour(), F.lit("url").alias("kind"), F.col("url").alias("term"))
    return searched.unionByName(clicked).withColumn("number", F.lit(1))


def _hour() -> Column:
    return F.date_trunc("hour", "event_time").alias("hour")


VIEW = View(
    reads=("search", "click"),
    transform=transform,
    key=("hour", "kind", "term"),
    measures={"number": Sum()},
    dedupe="1 hour",
    present={"rising": RISING},
    checks=("number > 0", "kind IN ('word', 'url')"),
    meanings={
        "rising": Meaning(
            "each term of an hour beside the hour before",
            {"before": "the same in the hour before; 0 if it had no such term", "rise": "`number` less `before`"},
        )
    },
    columns={
        "hour": "start of the hour, by corrected event time",
        "kind": "`word` of a search query, or `url` of a click",
        "term": "the word without case and accents, or the URL",
        "number": "searches with this word, or clicks on this URL",
    },
    owner="search",
    version=3,
)
