"""People search: profiles, found by their words. A closed profile is not found.

The name of a person weighs most, then the headline and the keywords, then the company. Words are found as in all
searches (`truelog.text.words`). The endings of English words do not matter, and neither do words such as "the".
PostgreSQL's full-text search looks matches up by index.
"""

import re

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Latest, Meaning, View, latest

DOCUMENT = """
truelog.word_vector({name}, 'A') ||
truelog.word_vector(coalesce({headline}, '') || ' ' || coalesce({keywords}, ''), 'B') ||
truelog.word_vector({company}, 'C')
"""
COLUMNS = ("name", "headline", "company", "keywords")

# Query it with `WHERE document @@ truelog.word_query('data engineer')`, best first by `ts_rank`.
DOCUMENTS = """
SELECT person_id, name, headline, company, keywords, {document} AS document FROM {view}
""".replace("{document}", re.sub(r"[{}]", "", DOCUMENT))


def transform(profile: DataFrame) -> DataFrame:
    """One row per event: the profile, or that it is closed."""
    values = {column: column for column in COLUMNS}
    last = latest("event_time", deleted=F.col("verb") == "closed", **values)
    return profile.where(F.col("verb").isin("changed", "closed")).select("person_id", last.alias("last"))


VIEW = View(
    reads=("profile",),
    transform=transform,
    key=("person_id",),
    measures={"last": Latest()},
    present={"documents": DOCUMENTS},
    indexes=(DOCUMENT,),
    meanings={
        "documents": Meaning(
            "the words of each profile, for full-text search", {"document": "the words, with the name first in weight"}
        )
    },
    columns={
        "person_id": "the site's id for the person",
        "name": "the name that others see",
        "headline": "what the person does",
        "company": "where the person works",
        "keywords": "skills and interests, separated by commas",
    },
    owner="search",
    version=2,
)
