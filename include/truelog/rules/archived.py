"""The archived events that a rule or a search is tried on."""

from datetime import datetime

from pyspark.sql import DataFrame

from truelog.batch.rebuild import Rebuilder
from truelog.history.as_of import positions_at
from truelog.log.positions import Positions
from truelog.support.errors import BadInput
from truelog.tables.patterns.judging import judging_of


def begins_at(rebuilder: Rebuilder, at: datetime) -> Positions:
    """The positions at a time. Before the first tick, they are the beginning of the log."""
    try:
        return positions_at(rebuilder, at)[1]
    except BadInput:
        return Positions()


def inputs(rebuilder: Rebuilder, begins: Positions, ends: Positions) -> DataFrame:
    """The inputs between two positions, as the side table of the view would store them."""
    table = judging_of(rebuilder.compiled.own).inputs
    events = rebuilder.countable(table, begins.ranges_to(ends), ends)
    return table.stored(table.totals_of(events))
