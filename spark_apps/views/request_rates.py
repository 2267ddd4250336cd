"""Request rates per address: requests per minute, with a new one-minute window every ten seconds.

A request lies in six such windows. The table stores ten-second panes, and each request lies in one pane. A query sums
the six panes of a window.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Meaning, Sum, View

# The SELECT starts from the windows rather than from the panes, so that a query for some windows reads only their
# panes, through the key's index. It returns every window that contains a request, including the windows after an
# address's last pane. Seven days are written as hours, because some days have 23 or 25 hours in some time zones.
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
    """One row per event: the address, and the pane that contains it."""
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
    indexes=(("ip", "pane"),),  # for the requests of one address, which a rate limit asks for
    meanings={
        "per_minute": Meaning(
            "the requests of each address in each window of a minute; a window begins every ten seconds",
            {
                "window_start": "start of the window",
                "window_end": "end of the window",
                "requests": "page views in the window",
            },
        )
    },
    columns={
        "pane": "start of the ten seconds in which the requests were made, by corrected event time",
        "ip": "address of the visitor; NULL if unknown",
        "requests": "page views",
    },
    owner="security",
)
