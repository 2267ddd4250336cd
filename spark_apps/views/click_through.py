"""Which results of a search were clicked: one row per search, merged from the search and its clicks.

Either the search or a click may arrive first, by any margin; each leaves the other's columns NULL. Whether a click
counts depends on both, so the row stores both times and a query decides. A click counts for a result that the search
showed, within one hour before or after the search by event time (a device's clock may be slow).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import First, Latest, View, latest

# One row per search and result. `clicked_at` is NULL until the visitor clicks. A click that counts may still be made
# until `counts_until`, and may be logged even later.
RESULTS = """
SELECT search_id, asked_at, url, asked_at + interval '1 hour' AS counts_until, (
    SELECT min(at) FROM unnest(clicked_at, clicked) AS click(at, clicked_url)
    WHERE clicked_url = url AND at BETWEEN asked_at - interval '1 hour' AND asked_at + interval '1 hour'
) AS clicked_at
FROM {view} CROSS JOIN LATERAL (SELECT DISTINCT unnest(results) AS url) AS result
"""

# The hour is the hour of the search, so a late click changes the row that it belongs to.
RATES = """
SELECT date_trunc('hour', asked_at, 'UTC') AS hour, url, count(*) AS shown, count(clicked_at) AS clicked,
    round(count(clicked_at)::numeric / count(*), 4) AS rate
FROM ({results}) AS results GROUP BY 1, 2
""".replace("{results}", RESULTS)

NEVER_CLICKED = """
SELECT search_id, asked_at, url, counts_until FROM ({results}) AS results WHERE clicked_at IS NULL
""".replace("{results}", RESULTS)


def transform(search: DataFrame, click: DataFrame) -> DataFrame:
    """One row per event: the results of a search, or the URL and time of a click."""
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
        "asked_at": "time of the search, by corrected event time; NULL while only its clicks have arrived",
        "results": "URLs that the search showed, best first",
        "clicked_at": "times of the first 1,000 distinct clicks, in order",
        "clicked": "clicked URLs, in the order of `clicked_at`; the `results` relation shows whether a click counts",
    },
)
