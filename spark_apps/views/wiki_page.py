"""Wiki pages: every version of each page, in the order of the log.

All edits of a page are in one partition, so their offsets are their order. `current` shows the last version of each
page, and `changes` compares each version with the version before it. An edit that is sent again within an hour adds
no version, so it does not undo the edits in between.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Meaning, Value, View

CURRENT = """
SELECT p.page_id, v.title, v.text, v.author_id, v.edited_at
FROM (SELECT DISTINCT page_id FROM {view}) AS p CROSS JOIN LATERAL (
    SELECT * FROM {view} AS v WHERE v.page_id = p.page_id
    ORDER BY v.page_id DESC, v.partition DESC, v."offset" DESC LIMIT 1
) AS v WHERE v.verb = 'edited'
"""

# The n-th occurrence of a line cancels out with its n-th occurrence in the version before. A line that only moves is
# neither added nor removed.
CHANGES = """
SELECT v.page_id, v.version, v.edited_at, v.author_id, v.verb, v.comment, d.added, d.removed
FROM (
    SELECT *, row_number() OVER versions AS version, lag(text) OVER versions AS before FROM {view}
    WINDOW versions AS (PARTITION BY page_id ORDER BY partition, "offset")
) AS v CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(line ORDER BY number) FILTER (WHERE is_new), ARRAY[]::text[]) AS added,
        coalesce(array_agg(line ORDER BY number) FILTER (WHERE NOT is_new), ARRAY[]::text[]) AS removed
    FROM (
        SELECT line, bool_and(is_new) AS is_new, min(number) AS number FROM (
            SELECT *, row_number() OVER (PARTITION BY is_new, line ORDER BY number) AS nth FROM (
                SELECT true AS is_new, * FROM string_to_table(v.text, E'\\n') WITH ORDINALITY AS new (line, number)
                UNION ALL
                SELECT false, * FROM string_to_table(v.before, E'\\n') WITH ORDINALITY AS old (line, number)
            ) AS lines
        ) AS numbered GROUP BY line, nth HAVING count(*) = 1
    ) AS changed
) AS d
"""


def transform(page_edit: DataFrame) -> DataFrame:
    """One row per event: the page as it is since then."""
    values = ("verb", "title", "text", "author_id", "comment")
    known = page_edit.where(F.col("verb").isin("edited", "deleted"))
    return known.select("page_id", "partition", "offset", *values, F.col("event_time").alias("edited_at"))


VIEW = View(
    reads=("page_edit",),
    transform=transform,
    key=("page_id", "partition", "offset"),
    measures=dict.fromkeys(("verb", "title", "text", "author_id", "comment", "edited_at"), Value()),
    dedupe="1 hour",
    present={"current": CURRENT, "changes": CHANGES},
    meanings={
        "current": Meaning("the last version of each page that is not deleted"),
        "changes": Meaning(
            "every version of each page, with the lines that it added and removed",
            {"version": "number of the version, from 1", "added": "the added lines", "removed": "the removed lines"},
        ),
    },
    columns={
        "page_id": "the site's id for the page",
        "partition": "partition of the event",
        "offset": "offset of the event; the last version of a page has the largest offset",
        "verb": "edited or deleted",
        "title": "the title of the page",
        "text": "the whole text; NULL if the page was deleted",
        "author_id": "who changed the page",
        "comment": "why the author changed the page",
        "edited_at": "time of the edit, by corrected event time",
    },
    owner="editors",
    version=3,
)
