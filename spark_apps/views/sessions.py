"""Sessions: the visits of each visitor. A visit ends when the visitor requests no page for more than 30 minutes.

A session depends on all requests of its visitor: an event that arrives late may begin a session earlier, or connect two
sessions. Its start is part of the key, so the old rows vanish and the new one appears.

The view has the part of a session in each UTC day, and the relation `visits` joins the parts of several days. So a
visitor with too many requests loses the sessions of one day only, and the inputs of a day may expire together. An event
that was sent again counts once in its day.

An event always names its visitor, so every request belongs to a session. The site's `session_id` is not used, because
an access log has none.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from truelog import Group, Meaning, once

GAP = 30 * 60 * 1_000_000  # microseconds

# Two parts of a day are more than thirty minutes apart, so parts that are less apart are parts of one session.
VISITS = """
SELECT visitor_id, min(started_at) AS started_at, max(ended_at) AS ended_at, sum(pages)::bigint AS pages,
    (array_agg(entry ORDER BY started_at))[1] AS entry, (array_agg(exit ORDER BY started_at DESC))[1] AS exit
FROM (
    SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY visitor_id ORDER BY day, started_at) AS visit
    FROM (
        SELECT *, coalesce(started_at - lag(ended_at) OVER (PARTITION BY visitor_id ORDER BY day, started_at)
            > interval '30 minutes', true) AS begins
        FROM {view}
    ) AS part
) AS numbered GROUP BY visitor_id, visit
"""

# The pages of a session, in order. If a request was sent again, the first copy in the log counts.
STEPS = """
SELECT v.visitor_id, v.started_at, row_number() OVER (
    PARTITION BY v.visitor_id, v.started_at ORDER BY i.at, i.topic, i.partition, i."offset"
) AS step, i.at, i.page
FROM ({visits}) AS v CROSS JOIN LATERAL (
    SELECT DISTINCT ON (day, event_id) * FROM {inputs} AS of_day
    WHERE of_day.visitor_id = v.visitor_id AND of_day.day BETWEEN date_trunc('day', v.started_at, 'UTC') AND v.ended_at
    ORDER BY day, event_id, topic, partition, "offset"
) AS i WHERE i.at BETWEEN v.started_at AND v.ended_at
""".replace("{visits}", VISITS)

# A session counts in the hour in which it began.
PER_HOUR = """
SELECT date_trunc('hour', started_at, 'UTC') AS hour, count(*) AS sessions, sum(pages)::bigint AS pages,
    count(*) FILTER (WHERE pages = 1) AS bounced, avg(ended_at - started_at) AS average_duration
FROM ({visits}) AS visits GROUP BY 1
""".replace("{visits}", VISITS)


def transform(page_view: DataFrame) -> DataFrame:
    """One row per request."""
    day = F.date_trunc("day", "event_time").alias("day")
    return page_view.select("visitor_id", day, F.col("event_time").alias("at"), "page", "event_id")


def fold(requests: DataFrame) -> DataFrame:
    """The requests of some visitors and days → one row for each session, within its day."""
    visitor = Window.partitionBy("visitor_id", "day").orderBy("at", "topic", "partition", "offset")
    gap = F.unix_micros("at") - F.unix_micros(F.lag("at").over(visitor))
    begins = once(requests, "visitor_id", "day").select(
        "*", F.coalesce(gap > GAP, F.lit(False)).cast("int").alias("begins")
    )
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
    inputs=("at", "page", "event_id"),
    fold=fold,
    key=("visitor_id", "day", "started_at"),
    values=("ended_at", "pages", "entry", "exit"),
    present={"visits": VISITS, "steps": STEPS, "per_hour": PER_HOUR},
    checks=("pages > 0", "ended_at >= started_at"),
    meanings={
        "visits": Meaning(
            "the sessions, whole, also over midnight",
            {
                "started_at": "time of the session's first request, by corrected event time",
                "ended_at": "time of the session's last request",
                "pages": "requests of the session",
            },
        ),
        "steps": Meaning(
            "every request of each session, also over midnight",
            {
                "started_at": "time of the session's first request, by corrected event time",
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
            "requests, by visitor and day, with copies",
            {
                "day": "the UTC day of the request",
                "at": "time of the request, by corrected event time",
                "page": "path of the page; NULL if the URL has none",
            },
        ),
    },
    columns={
        "visitor_id": "the site's id for the visitor",
        "day": "a UTC day of the session",
        "started_at": "time of the session's first request in the day, by corrected event time",
        "ended_at": "time of the session's last request in the day",
        "pages": "requests of the session in the day",
        "entry": "path of the first page; NULL if the URL has none",
        "exit": "path of the last page; NULL if the URL has none",
    },
    owner="web analytics",
    version=3,
)
