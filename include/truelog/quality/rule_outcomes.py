"""The rules of a validation, each with what was observed: our own account of what Data Docs show."""

from dataclasses import dataclass

from truelog.quality.gx_runner import breaking_rows
from truelog.storage.database import Connection

_OUTCOMES = """
    SELECT o #>> '{expectation_config,description}', (o ->> 'success')::boolean, o #> '{result,observed_value}'
    FROM truelog.validation v
    CROSS JOIN jsonb_path_query(v.result, '$.results[*].results[*]') WITH ORDINALITY AS found (o, place)
    WHERE id = %s ORDER BY place
"""


@dataclass(frozen=True)
class RuleOutcome:
    """A rule, whether it was met, and what was observed; `observed` is empty if the rule could not be checked."""

    rule: str
    success: bool
    observed: str


def rule_outcomes(connection: Connection, validation: int) -> list[RuleOutcome]:
    """The rules of a validation in their order; none if the validation does not exist."""
    rows = connection.execute(_OUTCOMES, (validation,)).fetchall()
    return [RuleOutcome(str(rule), bool(success), _text(observed)) for rule, success, observed in rows]


def _text(observed: object) -> str:
    """Earlier releases stored how many rows break the rule."""
    if observed is None:
        return ""
    return breaking_rows(observed) if isinstance(observed, int) else str(observed)
