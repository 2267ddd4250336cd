"""Workshop: what batch work on views needs — a Spark session, and the views compiled — for as long as it lasts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from truelog.control.view_loader import LoadedViews, load_views
from truelog.kernel.apply_batch import BatchApplier
from truelog.schema.event import load_events
from truelog.spark.session import session
from truelog.support.settings import Settings
from truelog.views import catalogue


@contextmanager
def open_batch(
    settings: Settings, name: str, views: Sequence[str]
) -> Iterator[tuple[SparkSession, BatchApplier, LoadedViews]]:
    """The named views, or all of them; those that cannot be worked on are refused, each with its reason."""
    types, spark = load_events(), session(settings, name)
    try:
        assembly = load_views(spark, settings, types, views or catalogue.view_names(settings.views_folder))
        yield spark, BatchApplier(settings, types), assembly
    finally:
        spark.stop()
