"""Workshop: what batch work on views needs — a Spark session, and the views compiled — for as long as it lasts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from truelog.control.view_loader import Assembly, assemble
from truelog.kernel.apply_batch import Advancer
from truelog.schema.event import load_events
from truelog.spark.session import session
from truelog.support.settings import Settings
from truelog.views import catalogue


@contextmanager
def workshop(settings: Settings, name: str, views: Sequence[str]) -> Iterator[tuple[SparkSession, Advancer, Assembly]]:
    """The named views, or all of them; those that cannot be worked on are refused, each with its reason."""
    types, spark = load_events(), session(settings, name)
    try:
        assembly = assemble(spark, settings, types, views or catalogue.names(settings.views_folder))
        yield spark, Advancer(settings, types), assembly
    finally:
        spark.stop()
