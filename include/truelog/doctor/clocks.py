"""The clock of a service beside the clock of this machine."""

from datetime import datetime, timedelta

from truelog.doctor.result import Area, Result

_CURE = "Synchronise both clocks with NTP. Times decide log days, expiry and freshness."


def clock(area: Area, theirs: datetime, before: datetime, after: datetime, tolerated: timedelta) -> Result:
    """The result for a service that said its time between `before` and `after` by this machine's clock."""
    apart = max(before - theirs, theirs - after, timedelta())
    found = f"{apart.total_seconds():.1f} s from this machine's clock"
    return area.fine("clock", found) if apart <= tolerated else area.warning("clock", found, _CURE)
