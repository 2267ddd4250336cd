"""The parameters of a question about rows, and the question that they make of a relation."""

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from truelog.exports.query import Condition, Operator
from truelog.log.positions import LONGEST_TOKEN
from truelog.services.api.rows.catalogue import Relation
from truelog.services.api.rows.statement import Order, RowQuestion
from truelog.services.api.scoped_token import Scope
from truelog.support.errors import BadInput

MOST_CONDITIONS = 20
Text = Annotated[str, Field(max_length=8_192)]
PinnedVersion = Annotated[
    int | None,
    Field(
        ge=1,
        lt=2**31,
        description="Answer from this version, before and after readers move to it or from it.",
        examples=[2],
    ),
]


class KeyParameter(BaseModel):
    """The rows of a key. An unknown parameter is refused."""

    model_config = ConfigDict(extra="forbid")

    key: Annotated[
        list[Text],
        Field(
            max_length=MOST_CONDITIONS,
            description="The whole key: one value for each key column, in their order.",
            examples=[["2026-01-01T10:00:00Z", "shop.example"]],
        ),
    ] = []


class RowParameters(KeyParameter):
    """Which rows, which of their columns, in which order."""

    where: Annotated[
        list[Text],
        Field(
            max_length=MOST_CONDITIONS,
            description="A condition on a column: `host=shop.example`, `minute>=2026-01-01T00:00`, `host is NULL`, "
            "`host contains shop`. The operators are =, <>, <, <=, > and >=. All conditions must be true.",
            examples=[["host=shop.example", "views>10"]],
        ),
    ] = []
    columns: Annotated[
        Text,
        Field(description="The columns to answer, separated by commas. All by default.", examples=["minute,views"]),
    ] = ""
    order: Annotated[
        Text,
        Field(
            description="The columns to sort by, separated by commas. `-views` sorts descending. The key by default.",
            examples=["-views,minute"],
        ),
    ] = ""
    limit: Annotated[int, Field(ge=1, description="The most rows of the answer.", examples=[50])] = 100
    cursor: Annotated[Text, Field(description="`next` of the page before.", examples=["eyJvZiI6Ij…"])] = ""
    moving: Annotated[
        bool,
        Field(
            description="Continue although the view has changed since the page before. Pages may then differ.",
            examples=[True],
        ),
    ] = False
    version: PinnedVersion = None
    at_least: Annotated[
        str,
        Field(
            max_length=LONGEST_TOKEN,
            description="A position token of the collector: answer when the view has read these events.",
            examples=["eyJ0b3BpY3…"],
        ),
    ] = ""
    wait: Annotated[
        float, Field(ge=0, le=60, description="The longest wait for `at_least`, in seconds.", examples=[2.5])
    ] = 2.0
    as_of: Annotated[
        str,
        Field(
            max_length=40,
            description="The rows as they were at this time of the log, such as 2026-01-01T10:00:00Z. They are rebuilt "
            "from the archive: the answer is 202 until a job has done so. Ask the same again after `Retry-After`. All "
            "pages are parts of one answer, which has a limited number of rows.",
            examples=["2026-01-01T10:00:00Z"],
        ),
    ] = ""

    @property
    def what(self) -> tuple[object, ...]:
        """The parameters that all pages of a walk have in common."""
        return self.key, self.where, self.columns, self.order, self.as_of


Rows = Annotated[RowParameters, Query()]


def question(asked: RowParameters, relation: Relation, scope: Scope | None, most: int, slot: int = 0) -> RowQuestion:
    """The question without a place of a reader with this slot. Its rows are limited to the scope.

    Raises:
        BadInput: a parameter does not fit the relation.
    """
    if asked.limit > most:
        raise BadInput(f"limit: an answer has at most {most} rows; use `next` for further rows")
    conditions = [Condition.parse(each) for each in asked.where]
    if asked.key:
        conditions += _whole_key(asked.key, relation)
    scoped = {} if scope is None else scope.values
    conditions += [Condition(column, Operator.EQUAL, value) for column, value in scoped.items()]
    columns = tuple(_names(asked.columns))
    for name in (*columns, *(each.column for each in conditions)):
        _require_column(relation, name)
    order = _order(asked.order, relation)
    return RowQuestion(relation, tuple(conditions), columns, order, asked.limit, slot=slot, version=asked.version)


def _whole_key(values: list[str], relation: Relation) -> list[Condition]:
    if len(values) != len(relation.key):
        named = ", ".join(relation.key) or "no columns"
        raise BadInput(f"key: give one value for each column of the key, which has {named}; use `where` for a part")
    return [Condition(*each) for each in zip(relation.key, [Operator.EQUAL] * len(values), values, strict=True)]


def _order(text: str, relation: Relation) -> tuple[Order, ...]:
    """The columns that were asked for, and the rest of the key, so that the order of a table's rows is total."""
    chosen = [Order(each.removeprefix("-"), each.startswith("-")) for each in _names(text)]
    named = [each.column for each in chosen]
    for name in named:
        _require_column(relation, name)
    if len(set(named)) < len(named):
        raise BadInput("order: a column is named twice")
    return (*chosen, *(Order(each) for each in relation.key if each not in named))


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")] if text else []


def _require_column(relation: Relation, name: str) -> None:
    if name not in relation.types:
        raise BadInput(f"there is no column {name!r}; the columns are {', '.join(relation.types)}")
