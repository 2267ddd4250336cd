"""Documents: the text of each document, which follows from many small edits in their order.

All edits of a document are in one partition, so their offsets are their order. The number of edits is the revision of
the text. An edit may name the revision that it was made on, and is then transformed over the edits since that revision
(`docs/documents.md`). An edit that is refused changes nothing, and `refused` says why. An edit that is sent again
within an hour counts once.

A checkpoint has the changes of the edits since the checkpoint before it, from which `recent_edits` and `snapshots`
follow.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Group, Meaning, Steps
from truelog.text import revised_text
from truelog.text.revised_text import CODE_POINTS, UTF16

# Every edit of a document as it was sent, in the order of partition and offset.
HISTORY = """
SELECT document_id, partition, "offset", event_id, edited_at, author_id,
    base_revision, unit, position, removed, inserted
FROM {inputs}
"""

# The last edits of each document as they changed its text, with a row for each step of an edit.
RECENT_EDITS = """
SELECT d.document_id, e.revision, c.step, e.partition, e."offset", e.event_id,
    e.edited_at, e.author_id, e.base_revision,
    nullif(d.recent_refusals[(e.revision - d.edits)::int + cardinality(d.recent_refusals)], '') AS refused,
    c.place AS position, greatest(-c.size, 0) AS removed,
    c.utf16_place AS utf16_position, greatest(-c.utf16_size, 0) AS utf16_removed,
    CASE WHEN c.size > 0 THEN e.inserted ELSE '' END AS inserted
FROM {{view}} AS d CROSS JOIN LATERAL (
    SELECT i.*, d.edits + 1 - row_number() OVER (ORDER BY i.partition DESC, i."offset" DESC) AS revision
    FROM (
        SELECT topic, partition, "offset", event_id, edited_at, author_id, base_revision, inserted
        FROM {{inputs}} AS i WHERE i.document_id = d.document_id
        ORDER BY i.document_id DESC, i.topic DESC, i.partition DESC, i."offset" DESC LIMIT {every}
    ) AS i
) AS e LEFT JOIN LATERAL (
    SELECT revision, row_number() OVER (PARTITION BY revision ORDER BY number) AS step,
        place, size, utf16_place, utf16_size
    FROM unnest(
        d.recent_revisions, d.recent_places, d.recent_sizes, d.recent_utf16_places, d.recent_utf16_sizes
    ) WITH ORDINALITY AS c (revision, place, size, utf16_place, utf16_size, number)
) AS c ON c.revision = e.revision
"""

# The text as each edit left it: the last checkpoint before, and the changes since then. These are in the next
# checkpoint, or in the document if there is none.
SNAPSHOTS = """
SELECT e.document_id, e.partition, e."offset", e.edited_at, e.author_id, s.text
FROM {inputs} AS e CROSS JOIN LATERAL (
    WITH RECURSIVE checkpoint AS (
        SELECT number, partition, "offset", text FROM {checkpoints} AS c
        WHERE c.document_id = e.document_id AND (c.topic, c.partition, c."offset") <= (e.topic, e.partition, e."offset")
        ORDER BY c.topic DESC, c.partition DESC, c."offset" DESC LIMIT 1
    ), edits AS MATERIALIZED (
        SELECT inserted, coalesce((SELECT number FROM checkpoint), 0)
            + row_number() OVER (ORDER BY i.partition, i."offset") AS revision
        FROM {inputs} AS i
        WHERE i.document_id = e.document_id AND (i.topic, i.partition, i."offset") <= (e.topic, e.partition, e."offset")
            AND (i.topic, i.partition, i."offset") > (
                e.topic,
                coalesce((SELECT partition FROM checkpoint), -1),
                coalesce((SELECT "offset" FROM checkpoint), -1)
            )
    ), next_checkpoint AS (
        SELECT recent_revisions, recent_places, recent_sizes FROM {checkpoints} AS c
        WHERE c.document_id = e.document_id AND (c.topic, c.partition, c."offset") >= (e.topic, e.partition, e."offset")
        ORDER BY c.topic, c.partition, c."offset" LIMIT 1
    ), recent AS MATERIALIZED (
        SELECT * FROM next_checkpoint UNION ALL
        SELECT recent_revisions, recent_places, recent_sizes FROM {view} AS d
        WHERE d.document_id = e.document_id AND NOT EXISTS (SELECT FROM next_checkpoint)
    ), changes AS MATERIALIZED (
        SELECT row_number() OVER (ORDER BY c.number) AS number, c.place, c.size, i.inserted
        FROM recent AS r CROSS JOIN LATERAL unnest(r.recent_revisions, r.recent_places, r.recent_sizes)
            WITH ORDINALITY AS c (revision, place, size, number) JOIN edits AS i ON i.revision = c.revision
    ), texts AS (
        SELECT 0::bigint AS number, coalesce((SELECT text FROM checkpoint), '') AS text
        UNION ALL
        SELECT c.number, left(t.text, c.place)
            || CASE WHEN c.size > 0 THEN c.inserted ELSE '' END
            || substr(t.text, c.place + greatest(-c.size, 0) + 1)
        FROM texts AS t JOIN changes AS c ON c.number = t.number + 1
    )
    SELECT text FROM texts WHERE EXISTS (SELECT FROM recent) ORDER BY number DESC LIMIT 1
) AS s
"""

OF_EDIT = {
    "author_id": "who edited the document",
    "edited_at": "time of the edit, by corrected event time",
    "position": "where the edit begins, from 0",
    "removed": "how many characters it removed there",
    "inserted": "the text that it inserted there",
    "base_revision": "the revision that the edit was made on; NULL if it names none",
    "unit": "in what the edit counts: code_points or utf16",
}
OF_STEP = {
    "author_id": OF_EDIT["author_id"],
    "edited_at": OF_EDIT["edited_at"],
    "base_revision": OF_EDIT["base_revision"],
    "revision": "the revision of the text after the edit",
    "step": "number of the step within the edit, from 1; NULL if the edit changed nothing",
    "refused": "why the edit was refused; NULL if it was applied",
    "position": "where the step begins in the text before it, in code points from 0",
    "removed": "how many code points it removed there",
    "utf16_position": "where the step begins, in UTF-16 units",
    "utf16_removed": "how many UTF-16 units it removed there",
    "inserted": "the text that it inserted there",
}

OF_DOCUMENT = {
    "document_id": "the site's id for the document",
    "text": "the text after all edits",
    "characters": "the length of the text in code points",
    "utf16_units": "the length of the text in UTF-16 units",
    "edits": "the revision of the text: how many edits the document has had, including refused edits",
    "edited_at": "time of the last edit, by corrected event time",
    "refused": "why the last edit was refused; NULL if it was applied",
    "recent_refusals": "why each of the last edits was refused; empty if it was applied",
    "recent_revisions": "the revision of each change by the last edits, in their order",
    "recent_places": "the place of each change, in code points",
    "recent_sizes": "how many code points each change inserted; negative if it removed them",
    "recent_utf16_places": "the place of each change, in UTF-16 units",
    "recent_utf16_sizes": "how many UTF-16 units each change inserted; negative if it removed them",
}


def transform(document_edit: DataFrame) -> DataFrame:
    """One row per edit."""
    unit = F.coalesce("unit", F.lit(CODE_POINTS))
    inserted = F.coalesce("inserted", F.lit("")).alias("inserted")
    at = F.col("event_time").alias("edited_at")
    known = document_edit.where(unit.isin(CODE_POINTS, UTF16))
    sent = ("document_id", "event_id", "author_id", "base_revision", "position", "removed")
    return known.select(*sent, unit.alias("unit"), inserted, at)


def document(every: int, longest: int) -> Group:
    """The declaration of the view.

    every: the number of edits between checkpoints, and how many revisions an edit may be behind.
    longest: the characters of a text, at most.
    """
    return Group(
        reads=("document_edit",),
        transform=transform,
        by=("document_id",),
        inputs=("event_id", "author_id", "base_revision", "position", "removed", "unit", "inserted", "edited_at"),
        fold=Steps(revised_text.initial, revised_text.step(every, longest), every),
        key=("document_id",),
        values=tuple(name for name in OF_DOCUMENT if name != "document_id"),
        refusal="refused",
        most=2_000 * every,
        dedupe="1 hour",
        present={
            "history": HISTORY,
            "recent_edits": RECENT_EDITS.format(every=every),
            "snapshots": SNAPSHOTS,
        },
        checks=(f"characters BETWEEN 0 AND {longest}", "char_length(text) = characters"),
        meanings={
            "history": Meaning("every edit of each document as it was sent, in the order of the log", OF_EDIT),
            "recent_edits": Meaning(f"the steps in which the last {every} edits changed each document", OF_STEP),
            "snapshots": Meaning(
                "the text of each document after each of its edits",
                {name: OF_EDIT[name] for name in ("author_id", "edited_at")} | {"text": "the text after the edit"},
            ),
            "inputs": Meaning("the edits of each document", OF_EDIT),
            "checkpoints": Meaning("each document after every so many edits"),
        },
        columns=OF_DOCUMENT,
        owner="editors",
        version=2,
    )


VIEW = document(every=200, longest=50_000)
