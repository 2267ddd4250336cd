"""The bundle for Superset in docs/monitoring, and the statements that Superset makes of its charts."""

from typing import Any

import yaml

from truelog.support.settings import PROJECT

FOLDER = PROJECT / "docs" / "monitoring" / "superset"
Part = dict[str, Any]  # the content of a file
_GRAINS = {"PT1H": "hour", "P1D": "day"}


def parts(folder: str) -> dict[str, Part]:
    """The files of this folder of the bundle, by their ids."""
    found = [yaml.safe_load(path.read_text()) for path in sorted((FOLDER / folder).rglob("*.yaml"))]
    assert len({each["uuid"] for each in found}) == len(found)
    return {each["uuid"]: each for each in found}


def relation(dataset: Part) -> str:
    return f"{dataset['schema']}.{dataset['table_name']}"


def statement(chart: Part, dataset: Part) -> str:
    """The query of a chart. Columns and metrics have the names that the chart has for them."""
    params = chart["params"]
    metrics = {each["metric_name"]: each["expression"] for each in dataset.get("metrics", ())}
    columns = [*_axis(params), *params.get("all_columns", ()), *params.get("groupby", ())]
    chosen = [f"{metrics[name]} AS {name}" for name in params.get("metrics", ())]
    conditions = [_condition(each) for each in params["adhoc_filters"]]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    groups = ", ".join(str(number + 1) for number in range(len(columns)))
    grouped = f" GROUP BY {groups}" if chosen else ""
    return f"SELECT {', '.join([*columns, *chosen])} FROM {relation(dataset)}{where}{grouped}"


def _axis(params: Part) -> list[str]:
    if "x_axis" not in params:
        return []
    column = params["x_axis"]
    return [f"date_trunc('{_GRAINS[params['time_grain_sqla']]}', {column}) AS {column}"]


def _condition(condition: Part) -> str:
    if condition["expressionType"] == "SQL":
        return f"({condition['sqlExpression']})"
    assert condition["operator"] == "TEMPORAL_RANGE"
    return f"{condition['subject']} >= now() - interval '30 days'"
