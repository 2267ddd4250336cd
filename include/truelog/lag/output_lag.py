"""The lag of outputs: how far the relay is behind the outbox of each published view, with a verdict.

The verdict is a pure function. The first rule that applies decides:

1. REWIND: the rows do not continue where they were published last. The relay waits for `truelog output resync`.
2. STOP: the relay has not looked for 30 s, or never.
3. STALL: the oldest row that is not published is at least two minutes old.
4. WARN: it is at least `lag_late_seconds` old.
5. OK.
"""

from dataclasses import dataclass

from truelog.lag.verdict import LagVerdict
from truelog.relay.feed import RESYNC
from truelog.storage.database import Connection, read_value
from truelog.support.durations import in_words
from truelog.support.settings import Settings

DEAD_SECONDS = 30.0
_STALL_SECONDS = 120.0
_RATE_SECONDS = 300.0  # the time over which the rate of an output is measured

_OUTPUTS = """
    SELECT view, version, number, greatest(sent, first - 1), trouble, (
        SELECT extract(epoch FROM now() - made_at)::float8 FROM truelog.output_step s
        WHERE (s.view, s.version) = (o.view, o.version) AND last > o.sent ORDER BY last LIMIT 1
    ) FROM truelog.output o WHERE beginning IS NOT NULL ORDER BY view, version
"""
# The relay deletes published steps, so the oldest row that is left can be younger than the last step before the time.
_RATES = """
    SELECT view, version, greatest(0, sent - coalesce((
        SELECT last FROM truelog.output_step s WHERE (s.view, s.version) = (o.view, o.version)
            AND made_at <= now() - make_interval(secs => %(seconds)s) ORDER BY last DESC LIMIT 1
    ), (
        SELECT min(number) - 1 FROM truelog.outbox b WHERE (b.view, b.version) = (o.view, o.version)
    ), sent)) / %(seconds)s::float8 FROM truelog.output o WHERE beginning IS NOT NULL
"""


@dataclass(frozen=True)
class OutputLag:
    """What is known of one output. `seconds` is the age of the oldest row that is not published, 0 if there is none.

    sent: no row up to this number is to be published: it was, or it belongs to an earlier beginning.
    """

    view: str
    version: int
    number: int  # of the last row
    sent: int
    trouble: str
    seconds: float
    look_age: float | None  # None if no relay has ever looked

    @property
    def rows(self) -> int:
        """How many rows are not published."""
        return max(0, self.number - self.sent)

    @property
    def is_relay_down(self) -> bool:
        return self.look_age is None or self.look_age > DEAD_SECONDS


def outputs(connection: Connection) -> list[OutputLag]:
    """All outputs."""
    age = look_age(connection)
    return [
        OutputLag(str(view), int(str(version)), int(str(number)), int(str(sent)), str(trouble), _seconds(oldest), age)
        for view, version, number, sent, trouble, oldest in connection.execute(_OUTPUTS).fetchall()
    ]


def look_age(connection: Connection) -> float | None:
    """How many seconds ago the relay last looked."""
    found: float | None = read_value(
        connection, "SELECT extract(epoch FROM now() - looked_at)::float8 FROM truelog.relay"
    )
    return found


def publishing_rates(connection: Connection) -> dict[tuple[str, int], float]:
    """By view and version: published rows per second, of the transactions of the last five minutes."""
    rows = connection.execute(_RATES, {"seconds": _RATE_SECONDS}).fetchall()
    return {(str(view), int(str(version))): float(str(rate)) for view, version, rate in rows}


def assess(lag: OutputLag, settings: Settings) -> tuple[LagVerdict, str]:
    """The verdict, and its reason."""
    behind = f"{lag.rows:,} rows are not published; the oldest is {in_words(lag.seconds)} old"
    if 2 * lag.rows > settings.outbox_rows:  # `truelog.maintenance.outbox_limit`
        behind += f"; beyond {settings.outbox_rows:,} the earliest leave the outbox, and the output needs a resync"
    reason = f"{behind}: {lag.trouble}" if lag.trouble else behind
    if lag.trouble.startswith(RESYNC):
        return LagVerdict.REWIND, lag.trouble.removeprefix(RESYNC).strip()
    if lag.is_relay_down:
        since = "never looked" if lag.look_age is None else f"not looked for {in_words(lag.look_age)}"
        return LagVerdict.STOP, f"the relay has {since}; {behind}"
    if lag.seconds >= _STALL_SECONDS:
        return LagVerdict.STALL, reason
    if lag.seconds >= settings.lag_late_seconds:
        return LagVerdict.WARN, reason
    return LagVerdict.OK, reason if lag.rows else ""


def _seconds(oldest: object) -> float:
    return 0.0 if oldest is None else max(0.0, float(str(oldest)))
