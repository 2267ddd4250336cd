"""Which results of a search were clicked: one row per search, merged from the search and its clicks.

Either may come first, by any margin: each leaves the other's columns NULL. Whether a click counts depends on both, so
the row keeps when each was made, and it is decided when it is asked: a click counts for a result that was shown,
within one hour of the search, before or after, by event time (a device's clock may be a little behind).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import First, Latest, View, latest

# One row per search and result. `clicked_at` stays NULL while nobody has clicked; a click that would count may still
# come until `counts_until`, and may be logged later than that.
RESULTS = """
SELECT search_id, asked_at, url, asked_at + interval '1 hour' AS counts_until, (
    SELECT min(at) FROM unnest(clicked_at, clicked) AS click(at, clicked_url)
    WHERE clicked_url = url AND at BETWEEN asked_at - interval '1 hour' AND asked_at + interval '1 hour'
) AS clicked_at
FROM {view} CROSS JOIN LATERAL (SELECT DISTINCT unnest(results) AS url) AS result
"""

# The hour is that of the search, so that a late click changes the row it belongs to.
RATES = """
SELECT date_trunc('hour', asked_at, 'UTC') AS hour, url, count(*) AS shown, count(clicked_at) AS clicked,
    round(count(clicked_at)::numeric / count(*), 4) AS rate
FROM ({results}) AS results GROUP BY 1, 2
""".replace("{results}", RESULTS)

NEVER_CLICKED = """
SELECT search_id, asked_at, url, counts_until FROM ({results}) AS results WHERE clicked_at IS NULL
""".replace("{results}", RESULTS)


def transform(search: DataFrame, click: DataFrame) -> DataFrame:
    """One row per event: a search brings its results, a click its URL and time."""
    asked = search.select(
        F.col("event_id").alias("search_id"),
        latest("event_time", asked_at="event_time", results="results").alias("search"),
    )
    clicked = click.select(
        "search_id",
        F.struct(F.col("event_time").alias("clicked_at"), F.col("url").alias("clicked")).alias("clicks"),
    )
    return asked.unionByName(clicked, allowMissingColumns=True)


VIEW = View(
    reads=("search", "click"),
    transform=transform,
    key=("search_id",),
    measures={"search": Latest(), "clicks": First(1_000)},
    present={"results": RESULTS, "rates": RATES, "never_clicked": NEVER_CLICKED},
    checks=("cardinality(clicked) = cardinality(clicked_at)",),
    columns={
        "search_id": "`event_id` of the search",
        "asked_at": "when it was asked, by corrected event time; NULL while only clicks on it have come",
        "results": "URLs that were shown, best first",
        "clicked_at": "when something was clicked: the first 1,000 different clicks, in order",
        "clicked": "what was clicked, in the order of `clicked_at`; whether it counts, the relation `results` says",
    },
)
