"""Truelog: the log is the truth; a view is a cache of it.

The public API, for the files that declare views and event types. Names load on first use, so that Airflow can import
`truelog` without PySpark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truelog.measures.measure import First, FirstSeen, Latest, Max, Min, Sum, Value, latest
    from truelog.measures.sketches import Bloom, Distinct, Quantiles
    from truelog.schema.derived import Derived
    from truelog.schema.event import Event, Topic
    from truelog.schema.quality import Quality
    from truelog.views.group import Group
    from truelog.views.join import Join, Match, Totals
    from truelog.views.lateness import EventWindow, lateness
    from truelog.views.steps import Steps
    from truelog.views.view import View

__version__ = "0.2.0"
__all__ = [
    "Bloom",
    "Derived",
    "Distinct",
    "Event",
    "EventWindow",
    "First",
    "FirstSeen",
    "Group",
    "Join",
    "Latest",
    "Match",
    "Max",
    "Min",
    "Quality",
    "Quantiles",
    "Steps",
    "Sum",
    "Topic",
    "Totals",
    "Value",
    "View",
    "lateness",
    "latest",
]

_HOMES = {
    "Derived": "truelog.schema.derived",
    "Event": "truelog.schema.event",
    "Topic": "truelog.schema.event",
    "Quality": "truelog.schema.quality",
    "View": "truelog.views.view",
    "EventWindow": "truelog.views.lateness",
    "Group": "truelog.views.group",
    "lateness": "truelog.views.lateness",
    "Steps": "truelog.views.steps",
    **dict.fromkeys(("Join", "Match", "Totals"), "truelog.views.join"),
    **dict.fromkeys(
        ("First", "FirstSeen", "Latest", "Max", "Min", "Sum", "Value", "latest"), "truelog.measures.measure"
    ),
    **dict.fromkeys(("Bloom", "Distinct", "Quantiles"), "truelog.measures.sketches"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'truelog' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
