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
from truelog.support.settings import Settings


def build_fallbacks(settings: Settings, views: Sequence[str]) -> AnswerOutcome:
    """Build fallbacks for these views in a separate Spark session; an error in one view does not stop the others."""
    return build_each(settings, views, build_fallback)


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
