"""Workshop: what batch work on views needs — a Spark session, and the views compiled — for as long as it lasts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from truelog import catalogue
from truelog.advance import Advancer
from truelog.assembly import Assembly, assemble
from truelog.event import load_events
from truelog.session import session
from truelog.settings import Settings


@contextmanager
def workshop(settings: Settings, name: str, views: Sequence[str]) -> Iterator[tuple[SparkSession, Advancer, Assembly]]:
    """The named views, or all of them; those that cannot be worked on are refused, each with its reason."""
    types, spark = load_events(), session(settings, name)
    try:
        assembly = assemble(spark, settings, types, views or catalogue.names(settings.views_folder))
        yield spark, Advancer(settings, types), assembly
    finally:
        spark.stop()
