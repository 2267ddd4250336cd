"""Finds problems of the notifier: it is down, it is behind a view, or a channel accepts nothing or refuses."""

from collections.abc import Iterator

from truelog.alerts.rules import Finding, Observation
from truelog.lag import notification_lag
from truelog.lag.notification_lag import DEAD_SECONDS, Waiting
from truelog.storage import db_snapshot
from truelog.support.durations import in_words
from truelog.support.settings import Settings

NOTIFICATION_KINDS = ("notifier_down", "notifier_behind", "notifications_waiting", "notifications_lost")
_LATE_SECONDS = 60.0
_LOST_SECONDS = 3600.0


def observe(settings: Settings) -> Observation:
    """One finding if the notifier is down. Otherwise, one for each view and one for each channel that is late.

    While the notifier is down, what is late is its effect, or was late before. A channel that has lost a notification
    is found for an hour, even if no rule is in force.
    """
    with db_snapshot.read_snapshot(settings) as connection:
        needed, age = notification_lag.is_needed(connection), notification_lag.look_age(connection)
        unread, undelivered = notification_lag.unread(connection), notification_lag.undelivered(connection)
        lost = tuple(_lost(each) for each in notification_lag.lost(connection, _LOST_SECONDS))
    if not needed:
        return Observation(lost)
    late = (
        *_late("notifier_behind", unread, "changed rows are not read"),
        *_late("notifications_waiting", undelivered, "notifications wait"),
    )
    if age is None or age > DEAD_SECONDS:
        since = "never looked" if age is None else f"not looked for {in_words(age)}"
        down = Finding("notifier_down", "notifier", f"the notifier has {since}")
        return Observation((down, *lost), frozenset(each.key for each in late))
    return Observation((*late, *lost))


def _lost(those: Waiting) -> Finding:
    cause = f"{those.count:,} notifications of the last hour never arrived; the newest: {those.failed}"
    return Finding("notifications_lost", those.name, cause)


def _late(kind: str, waiting: list[Waiting], what: str) -> Iterator[Finding]:
    for each in waiting:
        if each.seconds >= _LATE_SECONDS:
            reason = f": {each.failed}" if each.failed else ""
            yield Finding(kind, each.name, f"{each.count:,} {what}; the oldest is {in_words(each.seconds)} old{reason}")
