"""Runs Helm on a chart, in the environment `.venv-helm`: reads a request as JSON, and prints the answer as JSON.

{"chart": PATH, "values": {}, "lint": false}
"""

import json
import sys

import helm_python


def answer(chart: str, values: dict[str, object], lint: bool) -> object:
    """The findings of `helm lint`, the texts of the templates by their names, or why the values are refused."""
    if lint:
        return helm_python.lint(chart, values, strict=True, kube_version="v1.37.0")
    with helm_python.Chart.load(chart) as loaded:
        try:
            return {"rendered": loaded.render(values, name="truelog", namespace="data")}
        except helm_python.HelmError as error:
            return {"refused": str(error)}


if __name__ == "__main__":
    json.dump(answer(**json.load(sys.stdin)), sys.stdout)
