"""Truelog: the log is the truth; a view is a cache of it.

The public API, for the files that declare views and event types. Names load on first use, so that Airflow can import
`truelog` without PySpark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from truelog.measures import registry as _measures

if TYPE_CHECKING:
    from truelog.measures.bloom import Bloom as Bloom
    from truelog.measures.distinct import Distinct as Distinct
    from truelog.measures.extremes import Max as Max
    from truelog.measures.extremes import Min as Min
    from truelog.measures.first import First as First
    from truelog.measures.first import FirstSeen as FirstSeen
    from truelog.measures.latest import Latest as Latest
    from truelog.measures.latest import latest as latest
    from truelog.measures.quantiles import Quantiles as Quantiles
    from truelog.measures.sum import Sum as Sum
    from truelog.measures.value import Value as Value
    from truelog.patterns.catalogue import EventSource as EventSource
    from truelog.schema.change import Change as Change
    from truelog.schema.derived import Derived as Derived
    from truelog.schema.derived import DerivedWords as DerivedWords
    from truelog.schema.event import Event as Event
    from truelog.schema.event import Topic as Topic
    from truelog.schema.quality import Quality as Quality
    from truelog.schema.required import Required as Required
    from truelog.searches.catalogue import TextSource as TextSource
    from truelog.views.captured import captured as captured
    from truelog.views.group import Group as Group
    from truelog.views.join import Join as Join
    from truelog.views.join import Match as Match
    from truelog.views.join import Totals as Totals
    from truelog.views.lateness import EventWindow as EventWindow
    from truelog.views.lateness import lateness as lateness
    from truelog.views.meaning import Meaning as Meaning
    from truelog.views.once import once as once
    from truelog.views.patterns import Patterns as Patterns
    from truelog.views.searches import Searches as Searches
    from truelog.views.steps import Steps as Steps
    from truelog.views.view import View as View

__version__ = "0.2.0"

_HOMES = _measures.homes() | {
    "Change": "truelog.schema.change",
    "EventSource": "truelog.patterns.catalogue",
    "Derived": "truelog.schema.derived",
    "DerivedWords": "truelog.schema.derived",
    "Event": "truelog.schema.event",
    "Topic": "truelog.schema.event",
    "Quality": "truelog.schema.quality",
    "Required": "truelog.schema.required",
    "View": "truelog.views.view",
    "captured": "truelog.views.captured",
    "EventWindow": "truelog.views.lateness",
    "Group": "truelog.views.group",
    "lateness": "truelog.views.lateness",
    "latest": "truelog.measures.latest",
    "Meaning": "truelog.views.meaning",
    "once": "truelog.views.once",
    "Patterns": "truelog.views.patterns",
    "Searches": "truelog.views.searches",
    "TextSource": "truelog.searches.catalogue",
    "Steps": "truelog.views.steps",
    **dict.fromkeys(("Join", "Match", "Totals"), "truelog.views.join"),
}
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'truelog' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
