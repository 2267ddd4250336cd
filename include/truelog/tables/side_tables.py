"""Side tables: the further tables that a view owns, beside the table that readers query.

A side table is declared like a view and has the same topics. It is merged in the view's transaction, at the view's
positions, and it is rebuilt, compared, repaired and certified with the view.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog.measures.sum import Sum
from truelog.support.errors import BadDeclaration
from truelog.tables import kinds
from truelog.views.lateness import is_late
from truelog.views.view import View

# The side tables that any view may have, and what `present` may name beside the side tables.
_RESERVED = {"dropped", "seen", "view", "clock"}


def side_tables(view: View) -> Mapping[str, View]:
    """The view's side tables, by name.

    Raises:
        BadDeclaration: a table of a Join has a reserved name.
    """
    sides = kinds.declared_kind(view).side_tables(view)
    kept = {"dropped": _dropped(view, view.allowed_lateness)} if view.allowed_lateness else {}
    kept |= kinds.further_side_tables(view)
    if taken := sorted(sides.keys() & (kept.keys() | _RESERVED)):
        raise BadDeclaration(f"{', '.join(taken)}: Truelog uses this name itself; rename the table of the Join")
    shared: dict[str, Any] = {name: getattr(view, name) for name in ("version", "batch_only", "dedupe")}
    return {name: replace(side, **shared) for name, side in {**sides, **kept}.items()}


def relation_names(view: View) -> list[str]:
    """The relations that readers see beside the view: what it presents, and its side tables."""
    return [*view.present, *side_tables(view)]


def _dropped(view: View, allowed: str) -> View:
    return View(
        reads=view.reads,
        transform=partial(_count_dropped, allowed),
        key=("topic", "hour"),
        measures={"events": Sum(), "dropped": Sum()},
        columns={
            "topic": "topic of the events",
            "hour": "start of the hour in which the events reached the log",
            "events": "valid events" + (", each once" if view.dedupe else ""),
            "dropped": f"events that reached the log more than {allowed} after their event time",
        },
    )


def _count_dropped(allowed: str, *events: DataFrame) -> DataFrame:
    hour, dropped = F.date_trunc("hour", "broker_time").alias("hour"), is_late(allowed).cast("int").alias("dropped")
    counted = (each.select("topic", hour, F.lit(1).alias("events"), dropped) for each in events)
    return reduce(lambda one, other: one.unionByName(other), counted)
