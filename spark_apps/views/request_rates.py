"""How often each address asks: requests in every minute, a new minute beginning every ten seconds.

A request lies in six such minutes. What is kept is ten-second panes, each request in one; the minutes are added up
when they are asked for, six panes each.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Sum, View

# Begins with the windows, not with the panes: a question about some windows reads the panes of those, by the key's
# index. Every window that a request lies in is there, those after an address's last pane too. Seven days are written
# in hours: a day has 23 or 25 of them where the reader's time zone says so.
PER_MINUTE = """
SELECT ip, ends - interval '1 minute' AS window_start, ends AS window_end, requests
FROM (SELECT min(pane) AS oldest, max(pane) AS newest FROM {view}) AS panes
CROSS JOIN LATERAL generate_series(
    greatest(oldest, newest - interval '168 hours') + interval '10 seconds',
    newest + interval '1 minute',
    interval '10 seconds'
) AS ends
CROSS JOIN LATERAL (
    SELECT ip, sum(requests)::bigint AS requests FROM {view}
    WHERE pane >= ends - interval '1 minute' AND pane < ends
    GROUP BY ip
) AS six_panes
"""


def transform(page_view: DataFrame) -> DataFrame:
    """One row per event: the pane of its address that it falls in."""
    return page_view.select(
        F.window("event_time", "10 seconds").start.alias("pane"),
        "ip",
        F.lit(1).alias("requests"),
    )


VIEW = View(
    reads=("page_view",),
    transform=transform,
    key=("pane", "ip"),
    measures={"requests": Sum()},
    present={"per_minute": PER_MINUTE},
    checks=("requests > 0",),
    keep="7 days",
    columns={
        "pane": "start of the ten seconds in which the requests were made, by corrected event time",
        "ip": "address of the visitor; NULL where it is not known",
        "requests": "page views",
    },
)
