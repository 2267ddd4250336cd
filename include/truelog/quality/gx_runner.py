"""Checks rules about database tables with Great Expectations and stores the results.

A rule selects the rows that break it. Great Expectations counts all such rows, not just a sample. What readers want
to see is the value that a rule is about, so a stored result has this value instead of the count.
"""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from truelog.quality import gx_docs
from truelog.quality.gx_docs import DocsHead
from truelog.storage.database import Connection, read_value
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from great_expectations import Checkpoint
    from great_expectations.datasource.fluent.postgres_datasource import PostgresDatasource


@dataclass(frozen=True)
class ValidationRule:
    """A rule about a table, and the condition that selects the rows that break the rule.

    `observed` is the value that the rule is about. It is None if the rule is about every row.
    """

    schema: str
    table: str
    means: str
    where: str = ""
    observed: str | None = None


@dataclass(frozen=True)
class ValidationResult:
    """The whole result, and the `means` of each rule that failed. `success` is None if there were no rules."""

    subject: str
    success: bool | None
    failed: tuple[str, ...]
    result: dict[str, Any]


def run_validation(settings: Settings, subject: str, rules: Sequence[ValidationRule]) -> ValidationResult:
    """Check the rules against the current content of the database."""
    if not rules:
        return ValidationResult(subject, None, (), {"results": []})
    results = _checkpoint(settings, subject, rules).run().run_results.values()
    result = {"results": [_with_values(each.to_json_dict()) for each in results]}  # type: ignore[no-untyped-call]
    outcomes = [outcome for suite in result["results"] for outcome in suite["results"]]
    failed = tuple(o["expectation_config"]["description"] for o in outcomes if not o["success"])
    return ValidationResult(subject, not failed, failed, result)


def save_validation(
    settings: Settings, connection: Connection, validation: ValidationResult, about: DocsHead, **subject: object
) -> None:
    """Store a result and its Data Docs page. The subject is a reconciliation or an event type's log day."""
    # The second pass turns NaN into text, because JSON has no NaN and PostgreSQL rejects it.
    plain = json.loads(json.dumps(validation.result, default=str), parse_constant=str)
    row = subject | {"success": validation.success, "failed": list(validation.failed), "result": json.dumps(plain)}
    query = sql.SQL("INSERT INTO truelog.validation ({}) VALUES ({}) RETURNING id").format(
        sql.SQL(", ").join(map(sql.Identifier, row)), sql.SQL(", ").join(sql.Placeholder() * len(row))
    )
    page = gx_docs.render_page(about, plain)
    with connection.transaction():
        gx_docs.store_page(settings, read_value(connection, query, list(row.values())), page)


def breaking_rows(count: int) -> str:
    """What is observed of a rule about every row."""
    return "1 row breaks it" if count == 1 else f"{count:,} rows break it"


def _with_values(suite: dict[str, Any]) -> dict[str, Any]:
    """Replace the number of rows that break a rule. A rule that could not be checked has no number."""
    for outcome in suite["results"]:
        count, value = outcome["result"].get("observed_value"), outcome["expectation_config"]["meta"].get("observed")
        if count is not None:
            outcome["result"]["observed_value"] = breaking_rows(count) if value is None else value
    return suite


def _checkpoint(settings: Settings, subject: str, rules: Sequence[ValidationRule]) -> "Checkpoint":
    """Configure Great Expectations in memory, with one suite for each table."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read on import, which takes seconds
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    logging.getLogger("great_expectations").setLevel(logging.WARNING)  # a task's log is for the task's own findings
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
    meta = {} if rule.observed is None else {"observed": rule.observed}
    columns = "1 AS broken" if meta else "*"
    query = f"SELECT {columns} FROM {{batch}}{where}"  # noqa: S608  rules come from the platform and from view authors
    return UnexpectedRowsExpectation(unexpected_rows_query=query, description=rule.means, meta=meta)
