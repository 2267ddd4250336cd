"""Judgement: what Great Expectations says of rules about tables of the database, and where that is kept.

A rule is a query for rows that must not be: what is counted is all of them, not a sample.
"""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from truelog.quality import gx_docs
from truelog.storage.database import Connection
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from great_expectations import Checkpoint
    from great_expectations.datasource.fluent.postgres_datasource import PostgresDatasource


@dataclass(frozen=True)
class ValidationRule:
    """Rows that must not be in a table, and what it means when there are none."""

    schema: str
    table: str
    means: str
    where: str = ""


@dataclass(frozen=True)
class ValidationResult:
    """What came out: the rules that failed, each by what it would have meant, and the whole result.

    `success` is None where there was nothing to judge by.
    """

    subject: str
    success: bool | None
    failed: tuple[str, ...]
    result: dict[str, Any]


def run_validation(settings: Settings, subject: str, rules: Sequence[ValidationRule]) -> ValidationResult:
    """Have the rules checked on the database as it is now."""
    if not rules:
        return ValidationResult(subject, None, (), {"results": []})
    results = _checkpoint(settings, subject, rules).run().run_results.values()
    found = {"results": [result.to_json_dict() for result in results]}  # type: ignore[no-untyped-call]
    outcomes = [outcome for result in found["results"] for outcome in result["results"]]
    failed = tuple(o["expectation_config"]["description"] for o in outcomes if not o["success"])
    return ValidationResult(subject, not failed, failed, found)


def save_validation(
    settings: Settings, connection: Connection, outcome: ValidationResult, title: str, **about: object
) -> None:
    """With what it is about, a comparison or a log day of an event type; and its Data Docs in the bucket."""
    # Through text once more: JSON knows no NaN, and PostgreSQL refuses it.
    plain = json.loads(json.dumps(outcome.result, default=str), parse_constant=str)
    row = about | {"success": outcome.success, "failed": list(outcome.failed), "result": json.dumps(plain)}
    query = sql.SQL("INSERT INTO truelog.validation ({}) VALUES ({}) RETURNING id").format(
        sql.SQL(", ").join(map(sql.Identifier, row)), sql.SQL(", ").join(sql.Placeholder() * len(row))
    )
    page = gx_docs.render_page(title, plain)
    with connection.transaction():
        [(number,)] = connection.execute(query, list(row.values())).fetchall()
        gx_docs.store_page(settings, int(str(number)), page)


def _checkpoint(settings: Settings, subject: str, rules: Sequence[ValidationRule]) -> "Checkpoint":
    """Everything that Great Expectations is told, in memory."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read when it is imported, which takes seconds
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    logging.getLogger("great_expectations").setLevel(logging.WARNING)  # a task's log is for what the task found
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = context.data_sources.add_postgres(subject, connection_string=settings.database_uri("postgresql+psycopg"))
    tables = dict.fromkeys((rule.schema, rule.table) for rule in rules)
    definitions = []
    for schema, table in tables:
        suite = gx.ExpectationSuite(name=f"{schema}.{table}")
        for rule in rules:
            if (rule.schema, rule.table) == (schema, table):
                suite.add_expectation(_expectation(rule))
        context.suites.add(suite)
        batch = _batch(source, schema, table)
        made = gx.ValidationDefinition(name=suite.name, data=batch, suite=suite)
        definitions.append(context.validation_definitions.add(made))
    checkpoint = gx.Checkpoint(
        name=subject, validation_definitions=definitions, result_format={"result_format": "COMPLETE"}
    )
    return context.checkpoints.add(checkpoint)


def _batch(source: "PostgresDatasource", schema: str, table: str) -> Any:
    asset = source.add_table_asset(f"{schema}.{table}", table_name=table, schema_name=schema)
    return asset.add_batch_definition_whole_table("all")


def _expectation(rule: ValidationRule) -> Any:
    from great_expectations.expectations.core.unexpected_rows_expectation import UnexpectedRowsExpectation

    where = f" WHERE {rule.where.replace('{', '{{').replace('}', '}}')}" if rule.where else ""
    query = "SELECT * FROM {batch}" + where  # noqa: S608  the rules are the platform's and the view's author's
    return UnexpectedRowsExpectation(unexpected_rows_query=query, description=rule.means)
