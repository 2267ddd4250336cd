"""Which results of a search were clicked: one row per search, merged from the search and its clicks.

Either the search or a click may arrive first, by any margin; each leaves the other's columns NULL. Whether a click
counts depends on both, so the row stores both times and a query decides. A click counts for a result that the search
showed, within one hour before or after the search by event time (a device's clock may be slow).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import FirstSeen, Latest, Meaning, View, latest

# One row per search and result. `clicked_at` is NULL until the visitor clicks, and `logged_at` is when the log had the
# first click that counts. A click that counts may still be made until `counts_until`, and may be logged even later.
RESULTS = """
SELECT search_id, asked_at, url, asked_at + interval '1 hour' AS counts_until, counted.clicked_at, counted.logged_at
FROM {view} CROSS JOIN LATERAL (SELECT DISTINCT unnest(results) AS url) AS result
CROSS JOIN LATERAL (
    SELECT min(at) AS clicked_at, min(logged) AS logged_at
    FROM unnest(clicked_at, clicked, appended_at) AS click(at, clicked_url, logged)
    WHERE clicked_url = url AND at BETWEEN asked_at - interval '1 hour' AND asked_at + interval '1 hour'
) AS counted
"""

# The hour is the hour of the search, so a late click changes the row that it belongs to.
RATES = """
SELECT date_trunc('hour', asked_at, 'UTC') AS hour, url, count(*) AS shown, count(clicked_at) AS clicked,
    round(count(clicked_at)::numeric / count(*), 4) AS rate
FROM ({results}) AS results GROUP BY 1, 2
""".replace("{results}", RESULTS)

# What is known about each result when its hour is over, by the log's clock. A click that counts and was logged in time
# makes the result `clicked`; without such a click, the result is `unclicked`. A later one adds the row `corrected`.
OUTCOMES = """
SELECT search_id, url, outcome, at FROM ({results}) AS result
CROSS JOIN LATERAL (VALUES
    ('clicked', logged_at, logged_at <= counts_until),
    ('unclicked', counts_until, {clock} >= counts_until AND coalesce(logged_at > counts_until, true)),
    ('corrected', logged_at, {clock} >= counts_until AND logged_at > counts_until)
) AS known(outcome, at, holds) WHERE holds
""".replace("{results}", RESULTS)


def transform(search: DataFrame, click: DataFrame) -> DataFrame:
    """One row per event: the results of a search, or the URL and time of a click."""
    asked = search.select(
        F.col("event_id").alias("search_id"),
        latest("event_time", asked_at="event_time", results="results").alias("search"),
    )
    clicked = click.select(
        "search_id",
        F.struct(
            F.col("event_time").alias("clicked_at"),
            F.col("url").alias("clicked"),
            F.col("broker_time").alias("appended_at"),
        ).alias("clicks"),
    )
    return asked.unionByName(clicked, allowMissingColumns=True)


VIEW = View(
    reads=("search", "click"),
    transform=transform,
    key=("search_id",),
    measures={"search": Latest(), "clicks": FirstSeen(1_000, seen="appended_at")},
    present={"results": RESULTS, "rates": RATES, "outcomes": OUTCOMES},
    checks=(
        "cardinality(clicked) = cardinality(clicked_at)",
        "cardinality(appended_at) = cardinality(clicked_at)",
    ),
    owner="search",
    version=2,
    meanings={
        "results": Meaning(
            "each result of each search, and whether it was clicked",
            {
                "url": "the URL of the result",
                "clicked_at": "time of the first click that counts, by corrected event time; NULL without one",
                "logged_at": "when the log had this click",
                "counts_until": "until when a click counts",
            },
        ),
        "rates": Meaning(
            "how often each URL was shown and clicked, by hour of the search",
            {
                "hour": "start of the hour of the search",
                "url": "the URL",
                "shown": "searches that showed the URL",
                "clicked": "of these, searches after which it was clicked",
                "rate": "`clicked` divided by `shown`",
            },
        ),
        "outcomes": Meaning(
            "what is known of each result when the time of its clicks is over",
            {
                "url": "the URL of the result",
                "outcome": "`clicked`, `unclicked`, or `corrected` by a click that the log had too late",
                "at": "when this was known, by the log's clock",
            },
        ),
    },
    columns={
        "search_id": "`event_id` of the search",
        "asked_at": "time of the search, by corrected event time; NULL while only its clicks have arrived",
        "results": "URLs that the search showed, best first",
        "clicked_at": "times of the first 1,000 distinct clicks, in order",
        "clicked": "clicked URLs, in the order of `clicked_at`; the `results` relation shows whether a click counts",
        "appended_at": "when each click first reached the log, in the order of `clicked_at`",
    },
)
