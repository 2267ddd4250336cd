"""Batch context: the Spark session, settings, event types and views that batch work uses."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from pyspark.sql import SparkSession

from truelog.control import event_registry, view_versions
from truelog.control.view_loader import LoadedViews, load_stored, load_views
from truelog.lineage import sender
from truelog.schema.event import EventTypes
from truelog.spark.early import begin_session
from truelog.spark.session import small_session
from truelog.storage.database import connect
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings
from truelog.tables import plan
from truelog.tables.compiled_view import CompiledView
from truelog.views import catalogue

SIDE_BY_SIDE = 4  # views at once; one alone leaves cores idle while it plans, commits or waits for PostgreSQL

# For so few records, most of the time is that of planning, and generated code takes longer to make than it saves.
SMALL_RECORDS = 200_000
_FEW_RECORDS = {
    # Spark describes each plan for its pages, which are off. With all fields, that takes longer than the plan.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.debug.maxToStringFields": "1",
    "spark.sql.maxPlanStringLength": "0",
    # A broadcast is a job of its own. A join of two partitions on this machine needs none.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",
}

_T = TypeVar("_T")


@dataclass(frozen=True)
class BatchContext:
    """A Spark session, the settings, the event types, the loaded views, and the clock at positions in the archive.

    are_few: this process may read the records from the archive by itself, because they are few.
    declaring: the session in which views are compiled, if `spark` is for few records and describes no plans.
    """

    spark: SparkSession
    settings: Settings
    event_types: EventTypes
    views: LoadedViews = field(default_factory=LoadedViews)
    clocks: dict[object, datetime | None] = field(default_factory=dict)  # that `Rebuilder.now` has found
    are_few: bool = False
    declaring: SparkSession | None = None

    @property
    def is_small(self) -> bool:
        """Whether `spark` is for few records."""
        return self.declaring is not None

    @property
    def compiling(self) -> SparkSession:
        """The session in which views are compiled: fingerprints contain descriptions of whole plans."""
        return self.declaring or self.spark


@contextmanager
def for_records(context: BatchContext, records: int) -> Iterator[BatchContext]:
    """The context, with a session for small batches if the work reads few records.

    Afterwards, the thread has the session of the given context again.
    """
    if records > SMALL_RECORDS:
        yield context
        return
    small = small_session(context.spark, context.settings.spark_catalog() | _FEW_RECORDS)
    try:
        yield replace(context, spark=small, declaring=context.compiling)
    finally:
        plan.write_as(context.spark)


@contextmanager
def open_batch(
    settings: Settings,
    name: str,
    views: Sequence[str],
    load: Callable[[Settings], EventTypes] = event_registry.confirmed_types,
    started: Future[SparkSession] | None = None,
) -> Iterator[BatchContext]:
    """Open a Spark session and load the named views, or all views. A view that cannot be loaded is refused.

    `started` is the session, if the caller has begun it (`truelog.spark.early`).
    """
    starting = begin_session(settings, name) if started is None else started
    try:
        types = load(settings)
        spark = starting.result()
        loaded = load_views(spark, settings, types, views or catalogue.view_names(settings.views_folder))
        yield BatchContext(spark, settings, types, loaded)
    finally:
        sender.flush(settings)
        starting.result().stop()


def load_beside(context: BatchContext) -> list[CompiledView]:
    """The versions of the context's views that run beside the declared versions. One that cannot be loaded is left out.

    Its application records the reason.
    """
    declared = {each.name: each.view.version for each in context.views.compiled}
    with connect(context.settings) as connection:
        running = view_versions.beside(context.settings, connection, declared)
        others = [(view, version) for view, version in running if version != declared[view]]
        stored = view_versions.stored(connection, others)
    return load_stored(context.compiling, context.settings, context.event_types, stored)[0]


@contextmanager
def open_view(
    settings: Settings, name: str, view: str, started: Future[SparkSession] | None = None
) -> Iterator[tuple[BatchContext, CompiledView]]:
    """One view, in a Spark session that ends with the block. `started` is as for `open_batch`.

    Raises:
        BadDeclaration: the view cannot be loaded.
    """
    with open_batch(settings, name, [view], started=started) as context:
        for reason in context.views.refused.values():
            raise BadDeclaration(reason)
        [compiled] = context.views.compiled
        yield context, compiled


def each_alone(
    context: BatchContext,
    work: Callable[[CompiledView], _T],
    failed: Callable[[CompiledView, Exception], _T],
    at_once: int = SIDE_BY_SIDE,
) -> list[_T]:
    """Do the work for each view of the context, and return what it returned, or what `failed` made of its error.

    An error in one view does not stop the others. Each view has a pool of Spark's scheduler: it gets its share of the
    cores, however many tasks the others have.
    """

    def alone(view: CompiledView) -> _T:
        context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", view.name)
        try:
            return work(view)
        except Exception as error:
            return failed(view, error)

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(alone, context.views.compiled))
