"""Fallbacks: batch answers for readers of a stream that is down, stalled or wrong.

`fallback_policy` decides which views need one. A fallback is stored only if it improves what readers see. This
condition is checked again once no merge can intervene.
"""

from collections.abc import Sequence

from truelog.batch.answer import build_answer
from truelog.batch.rebuild import Rebuilder
from truelog.log.positions import Positions
from truelog.serving import fallback_policy
from truelog.serving.answer_job import AnswerOutcome, build_each
from truelog.serving.batch_views import build_batch_view
from truelog.support.settings import Settings


def build_needed(settings: Settings, views: Sequence[str]) -> AnswerOutcome:
    """Build the views that are batch-only, and fallbacks for the others, in a separate Spark session.

    An error in one view does not stop the others.
    """
    return build_each(settings, views, _build)


def _build(rebuilder: Rebuilder) -> Positions | None:
    return build_batch_view(rebuilder) if rebuilder.compiled.view.batch_only else build_fallback(rebuilder)


def build_fallback(rebuilder: Rebuilder) -> Positions | None:
    """Store a rebuild at the archive's positions as the view's fallback; None if it would not improve what readers see.

    Raises: the errors of `build_answer`.
    """
    return build_answer(rebuilder, lambda archived: _improves(rebuilder, archived))


def _improves(rebuilder: Rebuilder, archived: Positions) -> bool:
    view = rebuilder.compiled.name, rebuilder.compiled.view.version
    return fallback_policy.improves(
        archived,
        fallback_policy.served_positions(rebuilder.connection, *view),
        quarantined=fallback_policy.is_quarantined(rebuilder.connection, *view),
    )
