"""Sessions: the visits of each visitor. A visit ends when the visitor requests no page for more than 30 minutes.

A session depends on all requests of its visitor: an event that arrives late may begin a session earlier, or connect two
sessions. Its start is part of the key, so the old rows vanish and the new one appears.

A session belongs to a UTC day: at midnight another one begins. So a visitor with too many requests loses the sessions
of one day only, and the inputs of a day may expire together.

An event always names its visitor, so every request belongs to a session. The site's `session_id` is not used, because
an access log has none.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from truelog import Group, Meaning

GAP = 30 * 60 * 1_000_000  # microseconds

# The pages of a session, in order.
STEPS = """
SELECT s.visitor_id, s.started_at, row_number() OVER (
    PARTITION BY s.visitor_id, s.started_at ORDER BY i.at, i.topic, i.partition, i."offset"
) AS step, i.at, i.page
FROM {view} AS s JOIN {inputs} AS i
ON (i.visitor_id, i.day) = (s.visitor_id, s.day) AND i.at BETWEEN s.started_at AND s.ended_at
"""

# A session counts in the hour in which it began.
PER_HOUR = """
SELECT date_trunc('hour', started_at, 'UTC') AS hour, count(*) AS sessions, sum(pages)::bigint AS pages,
    count(*) FILTER (WHERE pages = 1) AS bounced, avg(ended_at - started_at) AS average_duration
FROM {view} GROUP BY 1
"""


def transform(page_view: DataFrame) -> DataFrame:
    """One row per request."""
    day = F.date_trunc("day", "event_time").alias("day")
    return page_view.select("visitor_id", day, F.col("event_time").alias("at"), "page")


def fold(requests: DataFrame) -> DataFrame:
    """The requests of some visitors and days → one row for each session."""
    visitor = Window.partitionBy("visitor_id", "day").orderBy("at", "topic", "partition", "offset")
    gap = F.unix_micros("at") - F.unix_micros(F.lag("at").over(visitor))
    begins = requests.select("*", F.coalesce(gap > GAP, F.lit(False)).cast("int").alias("begins"))
    numbered = begins.select("*", F.sum("begins").over(visitor).alias("session"))
    session = Window.partitionBy("visitor_id", "day", "session").orderBy("at", "topic", "partition", "offset")
    whole = session.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    ends = numbered.select("*", F.first("page").over(whole).alias("entry"), F.last("page").over(whole).alias("exit"))
    sessions = ends.groupBy("visitor_id", "day", "session").agg(
        F.min("at").alias("started_at"),
        F.max("at").alias("ended_at"),
        F.count("*").alias("pages"),
        F.max("entry").alias("entry"),
        F.max("exit").alias("exit"),
    )
    return sessions.drop("session")


VIEW = Group(
    reads=("page_view",),
    transform=transform,
    by=("visitor_id", "day"),
    inputs=("at", "page"),
    fold=fold,
    key=("visitor_id", "day", "started_at"),
    values=("ended_at", "pages", "entry", "exit"),
    present={"steps": STEPS, "per_hour": PER_HOUR},
    checks=("pages > 0", "ended_at >= started_at"),
    meanings={
        "steps": Meaning(
            "every request of each session",
            {
                "step": "number of the request in the session, from 1",
                "at": "time of the request, by corrected event time",
                "page": "path of the page; NULL if the URL has none",
            },
        ),
        "per_hour": Meaning(
            "the sessions that began in each hour",
            {
                "hour": "start of the hour",
                "sessions": "sessions",
                "pages": "requests of the sessions",
                "bounced": "sessions of one request",
                "average_duration": "average time from the first to the last request of a session",
            },
        ),
        "inputs": Meaning(
            "requests, by visitor and day",
            {
                "at": "time of the request, by corrected event time",
                "page": "path of the page; NULL if the URL has none",
            },
        ),
    },
    columns={
        "visitor_id": "the site's id for the visitor",
        "day": "UTC day of the session",
        "started_at": "time of the session's first request, by corrected event time",
        "ended_at": "time of the session's last request, by corrected event time",
        "pages": "requests of the session",
        "entry": "path of the first page; NULL if the URL has none",
        "exit": "path of the last page; NULL if the URL has none",
    },
    version=2,
)
