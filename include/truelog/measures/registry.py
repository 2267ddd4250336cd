"""The measures, by name, with their modules. A new measure is listed here.

This module imports no measure, because Airflow and the services load it without PySpark.
"""

from pathlib import Path

from truelog.text.functions import word_functions

MEASURES = {
    "Sum": "sum",
    "Min": "extremes",
    "Max": "extremes",
    "Value": "value",
    "Latest": "latest",
    "First": "first",
    "FirstSeen": "first",
    "Distinct": "distinct",
    "Quantiles": "quantiles",
    "Bloom": "bloom",
}
_HERE = Path(__file__).parent


def homes() -> dict[str, str]:
    """The full name of the module of each measure."""
    return {name: f"truelog.measures.{module}" for name, module in MEASURES.items()}


def sql_functions() -> list[bytes]:
    """The SQL functions of all measures, and those of words: statements that replace what exists."""
    files = (_HERE / f"{module}.sql" for module in dict.fromkeys(MEASURES.values()))
    return [*(file.read_bytes() for file in files if file.exists()), word_functions()]
