"""The check of the log's clock: the time by which a view drops its rows must follow from the archive's ticks.

A stream takes the clock from the ticks that it has stored. If they are wrong, each merge drops too many rows or too
few, so they are replaced at once, whatever is done about the rows.
"""

from datetime import datetime

from truelog.batch.rebuild import Rebuilder
from truelog.kernel import clock, merge
from truelog.log.positions import Positions
from truelog.support import timestamps


def mend_clock(rebuilder: Rebuilder, positions: Positions) -> str:
    """Replace the stored ticks if they give the view another clock than the archive's ticks. Return what was wrong.

    The rows of a batch-only view come from the archive, and so does their clock.
    """
    connection, compiled = rebuilder.connection, rebuilder.compiled
    if not compiled.view.reads_clock or compiled.view.batch_only or clock.TOPIC not in positions.ids:
        return ""
    stored, right = merge.stored_clock(connection, compiled, positions), rebuilder.now(positions)
    if stored == right:
        return ""
    topic_id = positions.ids[clock.TOPIC]
    if stored is not None:
        clock.record_wrong(connection, topic_id, stored)
    clock.replace_ticks(connection, topic_id, rebuilder.source.ticks(positions), positions, compiled.view.reads)
    return (
        f"the stored ticks gave the clock {_text(stored)}, but it is {_text(right)} by the archive's ticks, which have "
        f"replaced them"
    )


def _text(time: datetime | None) -> str:
    return "no time" if time is None else timestamps.to_text(time)
