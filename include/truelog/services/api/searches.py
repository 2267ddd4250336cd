"""Full-text search: the rows of a view whose words match, the best first.

A view that can be searched presents a relation with one column of the type `tsvector`, such as `people_search`.
`truelog.word_vector` makes the column, or `to_tsvector('english', …)`, and the words of a search are found likewise.
"""

from typing import Annotated

from fastapi import Query
from psycopg import sql
from pydantic import BaseModel, ConfigDict, Field

from truelog.services.api.rows.catalogue import KnownView, Relation
from truelog.services.api.rows.reads import Statement
from truelog.services.api.rows.statement import with_source
from truelog.support.errors import RequestRefused

_VECTOR = "tsvector"
_PAGE = """
SELECT (SELECT row_to_json(_row)::text FROM (SELECT {columns}) AS _row) AS row, ''::text AS place
FROM {relation} AS r CROSS JOIN {query} AS q
WHERE r.{vector} @@ q ORDER BY ts_rank(r.{vector}, q) DESC, {columns} LIMIT {limit}
"""
_QUERY = "truelog.word_query(%(words)s)"
_ENGLISH_QUERY = "websearch_to_tsquery('english', %(words)s)"


class SearchParameters(BaseModel):
    """Which words, and how many rows. An unknown parameter is refused."""

    model_config = ConfigDict(extra="forbid")

    words: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1_000,
            description='As in search engines: `kafka or spark -java "data lake"`.',
            examples=['kafka or spark -java "data lake"'],
        ),
    ]
    limit: Annotated[int, Field(ge=1, le=100, description="The most rows of the answer.", examples=[20])] = 10


Words = Annotated[SearchParameters, Query()]


def searchable(view: KnownView) -> tuple[Relation, str]:
    """The relation of a view that has a document, and its column.

    Raises:
        RequestRefused: 404, the view cannot be searched.
    """
    for relation in view.relations.values():
        vectors = [name for name, type_ in relation.types.items() if type_ == _VECTOR]
        if len(vectors) == 1:
            return relation, vectors[0]
    raise RequestRefused(404, f"{view.view} cannot be searched: it presents no relation with a `tsvector` column")


def statement(view: KnownView, asked: SearchParameters, slot: int) -> Statement:
    """The statement of a search by a reader with this slot."""
    relation, vector = searchable(view)
    columns = sql.SQL(", ").join(
        sql.SQL("r.{}").format(sql.Identifier(each)) for each in relation.types if each != vector
    )
    page = sql.SQL(_PAGE).format(
        columns=columns,
        relation=sql.Identifier("views", relation.name),
        query=sql.SQL(_QUERY if relation.has_words else _ENGLISH_QUERY),
        vector=sql.Identifier(vector),
        limit=sql.Literal(asked.limit + 1),
    )
    return with_source(page), {"view": view.view, "slot": str(slot), "words": asked.words}
