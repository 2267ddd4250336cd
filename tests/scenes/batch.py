"""Batch work in the tests' shared Spark session. A new process for each job would take another twenty seconds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql import SparkSession

from truelog.batch.batch_context import BatchContext
from truelog.batch.recompute import Recomputed, recompute
from truelog.control import event_registry
from truelog.control.view_loader import LoadedViews
from truelog.log import records
from truelog.reconcile.reconcile import reconcile, reconcile_views
from truelog.reconcile.reconcile_result import COMPARE_ONLY, ReconcileRequest, ReconcileResult
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView
from truelog.tables.compiler import compile_view
from truelog.views import catalogue


@dataclass(frozen=True)
class Batch:
    """Runs batch jobs on the views of the scene's current environment."""

    spark: SparkSession

    @property
    def context(self) -> BatchContext:
        return BatchContext(self.spark, Settings(), event_registry.event_types(Settings()))

    def compiled(self, view: str) -> CompiledView:
        schemas = {topic: records.schema(each) for topic, each in event_registry.event_types(Settings()).items()}
        return compile_view(self.spark, view, catalogue.load_view(view, Settings().views_folder), schemas)

    def reconcile(self, view: str, request: ReconcileRequest = COMPARE_ONLY) -> ReconcileResult:
        return reconcile(self.context, self.compiled(view), request)

    def recompute(self, view: str, day: datetime, *, unfinished: bool = False) -> Recomputed:
        return recompute(self.context, self.compiled(view), day, unfinished=unfinished)

    def require_equal_from_raw(self, views: Sequence[str]) -> None:
        """Require each view to equal its rebuild from the archive's raw bytes, which are decoded once for all views."""
        assert views
        context = replace(self.context, views=LoadedViews([self.compiled(view) for view in views]))
        results = reconcile_views(context, ReconcileRequest(from_raw=True))
        assert [found.view for found in results] == list(views)
        for found in results:
            assert found.equal, (found.view, found.verdict, found.reason, found.sample[:3])
            assert found.rows > 0, found.view
