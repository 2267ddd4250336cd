"""Batch-only views: no stream runs them. Once a day, each is rebuilt from the archive as a batch answer.

Readers see the rows of the last build with their age. A new version of a view is shown when it is built.
"""

from functools import partial

from truelog.batch import answer
from truelog.batch.rebuild import Rebuilder
from truelog.control import view_tables
from truelog.kernel import merge
from truelog.log.positions import Positions
from truelog.serving import fallback_policy
from truelog.serving.answer_job import AnswerOutcome, build_each
from truelog.storage.database import connect
from truelog.support.errors import BadDeclaration, MeaningChanged
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.views import catalogue


def build_batch_views(settings: Settings) -> AnswerOutcome:
    """Build all batch-only views in a separate Spark session; an error in one view does not stop the others."""
    views = _batch_only_views(settings)
    return build_each(settings, views, build_batch_view) if views else AnswerOutcome()


def build_batch_view(rebuilder: Rebuilder) -> Positions | None:
    """Rebuild a batch-only view at the archive's positions; None if its rows contain everything that is archived.

    Raises: the errors of `build_answer`.
    """
    connection, compiled = rebuilder.connection, rebuilder.compiled
    table.deploy_table(connection, compiled)
    made = answer.build_answer(rebuilder, partial(_improves, rebuilder))
    if made is None:
        answer.refresh_answer(connection, compiled)
    return made


def _improves(rebuilder: Rebuilder, archived: Positions) -> bool:
    """Whether the archive and the view's rows contain different records, or the rows are wrong or outdated."""
    connection, compiled = rebuilder.connection, rebuilder.compiled
    if archived.plain() != merge.positions(connection, compiled).plain():
        return answer.is_at_or_past(rebuilder, archived)
    try:
        rebuilder.require_reading()
    except MeaningChanged:
        return True
    return fallback_policy.is_known_wrong(connection, compiled.name, compiled.view.version)


def _batch_only_views(settings: Settings) -> list[str]:
    """The batch-only views: by their files, or by their tables if a file cannot be loaded."""
    with connect(settings) as connection:
        known = view_tables.batch_only_views(connection)
    return [view for view in catalogue.view_names(settings.views_folder) if _is_batch_only(settings, view, known)]


def _is_batch_only(settings: Settings, view: str, known: set[str]) -> bool:
    try:
        return catalogue.load_view(view, settings.views_folder).batch_only
    except BadDeclaration:
        return view in known
