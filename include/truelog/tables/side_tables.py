"""Side tables: the further tables that a view owns, beside the table that readers query.

A side table is declared like a view and has the same topics. It is merged in the view's transaction, at the view's
positions, and it is rebuilt, compared, repaired and certified with the view.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from truelog.measures.sum import Sum
from truelog.measures.value import Value
from truelog.schema.names import COORDINATES
from truelog.support.errors import BadDeclaration
from truelog.tables.dedupe.compile import SEEN, seen_table
from truelog.tables.provenance_frame import ProvenanceFrame
from truelog.views.group import CHECKPOINTS, INPUTS, Group
from truelog.views.join import Join, Totals, counted
from truelog.views.judged import Judged
from truelog.views.lateness import is_late
from truelog.views.steps import NUMBER, Steps
from truelog.views.view import View


def side_tables(view: View) -> Mapping[str, View]:
    """The view's side tables, by name.

    Raises:
        BadDeclaration: a side of a Join has the name of another side table.
    """
    sides: dict[str, View] = {}
    if isinstance(view, Judged):
        sides = {INPUTS: view.inputs_table(_inputs(view)), view.rules_side: view.rules_table()}
    elif isinstance(view, Group):
        sides = {INPUTS: _inputs(view)}
        if isinstance(view.fold, Steps):
            sides[CHECKPOINTS] = _checkpoints(view)
    elif isinstance(view, Join):
        sides = _of_join(view)
    kept = {"dropped": _dropped(view, view.allowed_lateness)} if view.allowed_lateness else {}
    kept |= {SEEN: seen_table(view)} if view.dedupe else {}
    if taken := sorted(sides.keys() & kept.keys()):
        raise BadDeclaration(f"the view has a side table {', '.join(taken)} already; rename the table of the Join")
    sides |= kept
    shared: dict[str, Any] = {name: getattr(view, name) for name in ("version", "batch_only", "dedupe")}
    return {name: replace(side, **shared) for name, side in sides.items()}


def relation_names(view: View) -> list[str]:
    """The relations that readers see beside the view: what it presents, and its side tables."""
    return [*view.present, *side_tables(view)]


def _inputs(group: Group) -> View:
    return View(
        reads=group.reads,
        transform=partial(_with_coordinates, group),
        key=(*group.by, *COORDINATES),
        measures={name: Value() for name in group.inputs},
        allowed_lateness=group.allowed_lateness,
        keep=group.keep,
    )


def _checkpoints(group: Group) -> View:
    """The states of each group after some of its inputs. The key is that of the last of these inputs."""
    return View(
        reads=group.reads,
        transform=group.transform,
        key=(*group.by, *COORDINATES),
        measures={NUMBER: Value(), **group.measures},
        columns={NUMBER: "how many inputs of the group are before the checkpoint"},
        keep=group.keep,
    )


def _of_join(join: Join) -> dict[str, View]:
    """The tables of a Join: each follows only from events and from tables before it."""
    sides = {name: replace(side, allowed_lateness=join.allowed_lateness) for name, side in join.sides.items()}
    return sides | {name: _of_totals(join, each) for name, each in join.totals.items()}


def _of_totals(join: Join, totals: Totals) -> View:
    return View(
        reads=join.reads,
        transform=join.transform,
        key=totals.key,
        measures=counted(totals.counts),
        columns=totals.columns,
        indexes=totals.indexes,
    )


def _with_coordinates(group: Group, *events: Any) -> Any:
    """The inputs of the groups, each with the coordinates of its record."""
    frames: list[Any] = [ProvenanceFrame(each, COORDINATES) for each in events]
    transformed: Any = group.transform(*frames)
    selected = transformed.frame
    return selected.where(reduce(Column.__and__, (F.col(name).isNotNull() for name in group.by)))


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
