"""Whether a time range and the period before contain rows of the same intervals, so that they can be compared."""

from datetime import UTC, datetime

from truelog.reports.cubes.cube import Cube


def incomparable(cube: Cube, since: datetime, until: datetime, grain: int) -> str:
    """Why the range cannot be compared with the period before, or "". `grain` is the interval of a row in seconds."""
    now = datetime.now(UTC)
    if since.timestamp() % grain or until.timestamp() % grain:
        return "the range does not begin and end with an interval of the rows"
    if until > now:
        return "its last interval has not ended"
    if cube.keep is not None and since - (until - since) < now - cube.keep:
        return "the view no longer keeps all rows of the period before"
    return ""
