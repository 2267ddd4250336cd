"""Truelog: the log is the truth; a view is a cache of it.

What a view's file imports is here, and loaded when asked for: Airflow imports `truelog` without PySpark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truelog.views.measures import Distinct, First, Latest, Max, Min, Quantiles, Sum, latest
    from truelog.views.view import View

_HOMES = {
    "View": "truelog.views.view",
    **dict.fromkeys(
        ("Distinct", "First", "Latest", "Max", "Min", "Quantiles", "Sum", "latest"), "truelog.views.measures"
    ),
}

__all__ = ["Distinct", "First", "Latest", "Max", "Min", "Quantiles", "Sum", "View", "latest"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'truelog' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
