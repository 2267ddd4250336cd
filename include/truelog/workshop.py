"""Workshop: what batch work on views needs — a Spark session, and the views compiled — for as long as it lasts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from truelog import catalogue, records
from truelog.advance import Advancer
from truelog.compiled import Compiled, compile_view
from truelog.event import load_events
from truelog.session import session
from truelog.settings import Settings


@contextmanager
def workshop(
    settings: Settings, name: str, views: Sequence[str]
) -> Iterator[tuple[SparkSession, Advancer, list[Compiled]]]:
    """The named views, or all of them.

    Raises:
        BadDeclaration: there is no such view, or it is none.
    """
    types = load_events()
    chosen = views or catalogue.names(settings.views_folder)
    declared = {view: catalogue.load(view, settings.views_folder) for view in chosen}
    schemas = {topic: records.schema(each) for topic, each in types.items()}
    spark = session(settings, name)
    try:
        compiled = [compile_view(spark, view, each, schemas) for view, each in declared.items()]
        yield spark, Advancer(settings, types), compiled
    finally:
        spark.stop()
