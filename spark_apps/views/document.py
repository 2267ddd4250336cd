"""Documents: the text of each document, which follows from many small edits in their order.

All edits of a document are in one partition, so their offsets are their order. No edit fails: a position beyond the end
means the end, and an edit that would make the text too long changes nothing. Positions count code points. An edit that
is sent again within an hour counts once.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from truelog import Group, Meaning, Steps

# Every edit of a document, in the order of partition and offset.
HISTORY = """
SELECT document_id, partition, "offset", edited_at, author_id, position, removed, inserted FROM {inputs}
"""

# The text as each edit left it: the last checkpoint before, and the edits since then.
SNAPSHOTS = """
SELECT e.document_id, e.partition, e."offset", e.edited_at, e.author_id, s.text
FROM {{inputs}} AS e CROSS JOIN LATERAL (
    WITH RECURSIVE checkpoint AS (
        SELECT partition, "offset", text FROM {{checkpoints}} AS c
        WHERE c.document_id = e.document_id AND (c.topic, c.partition, c."offset") <= (e.topic, e.partition, e."offset")
        ORDER BY c.topic DESC, c.partition DESC, c."offset" DESC LIMIT 1
    ), edits AS MATERIALIZED (
        SELECT row_number() OVER (ORDER BY i.partition, i."offset") AS number, position, removed, inserted
        FROM {{inputs}} AS i
        WHERE i.document_id = e.document_id AND (i.topic, i.partition, i."offset") <= (e.topic, e.partition, e."offset")
            AND (i.topic, i.partition, i."offset") > (
                e.topic,
                coalesce((SELECT partition FROM checkpoint), -1),
                coalesce((SELECT "offset" FROM checkpoint), -1)
            )
    ), texts AS (
        SELECT 0::bigint AS number, coalesce((SELECT text FROM checkpoint), '') AS text
        UNION ALL
        SELECT i.number, CASE
            WHEN char_length(kept.start) + char_length(i.inserted) + char_length(kept.rest) > {longest} THEN t.text
            ELSE kept.start || i.inserted || kept.rest
        END
        FROM texts AS t JOIN edits AS i ON i.number = t.number + 1 CROSS JOIN LATERAL (
            SELECT left(t.text, least(i.position, {longest})::int) AS start,
                substr(t.text, least(i.position + i.removed, {longest})::int + 1) AS rest
        ) AS kept
    )
    SELECT text FROM texts ORDER BY number DESC LIMIT 1
) AS s
"""

OF_EDIT = {
    "author_id": "who edited the document",
    "edited_at": "time of the edit, by corrected event time",
    "position": "where the edit begins, in code points from 0",
    "removed": "how many code points it removed there",
    "inserted": "the text that it inserted there",
}


def transform(document_edit: DataFrame) -> DataFrame:
    """One row per edit."""
    inserted = F.coalesce("inserted", F.lit("")).alias("inserted")
    at = F.col("event_time").alias("edited_at")
    return document_edit.select("document_id", "author_id", "position", "removed", inserted, at)


def initial() -> Column:
    """A document before its first edit."""
    text, never, none = F.lit("").alias("text"), F.lit(None).cast("timestamp").alias("edited_at"), F.lit(0)
    return F.struct(text, none.alias("characters"), none.alias("edits"), never)


def steps(longest: int) -> Callable[[Column, Column], Column]:
    """The function from a document of at most so many characters, and an edit, to the document after the edit."""

    def step(document: Column, edit: Column) -> Column:
        text, length, inserted = document["text"], document["characters"], edit["inserted"]
        start = F.least(edit["position"], length).cast("int")
        rest = F.least(edit["position"] + edit["removed"], length).cast("int")
        characters = start + F.length(inserted) + length - rest
        changed = F.concat(F.substring(text, F.lit(1), start), inserted, F.substring(text, rest + 1, length))
        fits = characters <= longest
        return F.struct(
            F.when(fits, changed).otherwise(text).alias("text"),
            F.when(fits, characters).otherwise(length).alias("characters"),
            (document["edits"] + 1).alias("edits"),
            edit["edited_at"].alias("edited_at"),
        )

    return step


def document(every: int, longest: int) -> Group:
    """The declaration of the view, with so many edits between checkpoints and so many characters in a text."""
    return Group(
        reads=("document_edit",),
        transform=transform,
        by=("document_id",),
        inputs=("author_id", "position", "removed", "inserted", "edited_at"),
        fold=Steps(initial, steps(longest), every),
        key=("document_id",),
        values=("text", "characters", "edits", "edited_at"),
        most=400 * every,
        dedupe="1 hour",
        present={"history": HISTORY, "snapshots": SNAPSHOTS.format(longest=longest)},
        checks=(f"characters BETWEEN 0 AND {longest}", "char_length(text) = characters"),
        meanings={
            "history": Meaning("every edit of each document, in the order of partition and offset", OF_EDIT),
            "snapshots": Meaning(
                "the text of each document after each of its edits",
                {name: OF_EDIT[name] for name in ("author_id", "edited_at")} | {"text": "the text after the edit"},
            ),
            "inputs": Meaning("the edits of each document", OF_EDIT),
            "checkpoints": Meaning("the text of each document after every so many edits"),
        },
        columns={
            "document_id": "the site's id for the document",
            "text": "the text after all edits",
            "characters": "the length of the text in code points",
            "edits": "how many edits the document has had, including edits without effect",
            "edited_at": "time of the last edit, by corrected event time",
        },
        version=2,
    )


VIEW = document(every=1_000, longest=50_000)
