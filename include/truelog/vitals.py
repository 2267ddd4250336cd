"""Vital signs: the three numbers that matter, each by the view that is worst in it.

* freshness: age of the oldest record that some view has still to count
* lag: records that it has still to count
* proof: age of the oldest certificate, where of each view its newest counts
"""

from collections.abc import Callable
from dataclasses import dataclass

from truelog import certainty, lag_report, readers
from truelog.lag_report import Row, by_reader, freshness, lag_events
from truelog.settings import Settings


@dataclass(frozen=True)
class Sign:
    """`value` is None where it is not known, of the view that is named; of no view where there is none."""

    view: str | None
    value: float | None


@dataclass(frozen=True)
class Vitals:
    freshness: Sign
    lag: Sign
    proof: Sign


def now(settings: Settings) -> Vitals:
    """Of all views that were made: one that was not has nothing yet that could be old.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    with readers.snapshot(settings) as connection:
        made = connection.execute("SELECT DISTINCT view FROM truelog.view ORDER BY view").fetchall()
        views = [str(view) for (view,) in made]
        seen = by_reader(lag_report.rows(settings, connection, views)) if views else {}
        proved = {view: each.certified_age for view, each in certainty.every(connection, views).items()}
    return Vitals(_worst(_by(seen, freshness)), _worst(_by(seen, lag_events)), _worst(proved))


def _by(seen: dict[str, list[Row]], measure: Callable[[list[Row]], float | None]) -> dict[str, float | None]:
    return {reader: measure(rows) for reader, rows in seen.items()}


def _worst(values: dict[str, float | None]) -> Sign:
    """What is not known may be worse than anything that is."""
    if not values:
        return Sign(None, None)
    return max((Sign(view, value) for view, value in values.items()), key=lambda s: (s.value is None, s.value or 0))
