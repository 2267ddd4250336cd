"""Starts: with which rows of many groups a match of a rule may begin, and what a search from the others costs at most.

All rows go through the rule's program together, one event further at a time. Conditions count as true where they may
be, gaps and absences are ignored, and each path counts. So if no path from a row ends, no search finds a match there,
and its steps are at most those of all paths.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from truelog.patterns.rule import Rule
from truelog.patterns.together.events import Bools, Floats, Ints
from truelog.patterns.together.truth import Rows

MOST_EVENTS, MOST_PLACES = 256, 32  # how far and how wide paths are followed; a match may begin where more are needed
_MANY = 1e18  # paths, beyond which their number does not matter: their cost exceeds each budget

_Arrivals = Mapping[int, Floats]  # how many paths from each row have reached an instruction


class Starts(NamedTuple):
    """may: whether a match may begin with each row. costs: the most steps of a search from each other row."""

    may: Bools
    costs: Floats


def find_starts(rule: Rule, rows: Rows, fits: Mapping[str, Bools]) -> Starts:
    """The starts of a rule's matches. `fits`: for each step, the rows that may fit it."""
    found = Starts(np.zeros(len(rows), bool), np.zeros(len(rows)))
    begun, arrivals = np.arange(len(rows)), dict[int, Floats]({0: np.ones(len(rows))})
    for length in range(MOST_EVENTS):
        is_open = ~_accepted(rule, found, begun, arrivals, length)
        reading = begun + length
        is_open &= reading < rows.ends[begun]
        is_open[is_open] = rows.at[reading[is_open]] <= rows.at[begun[is_open]] + rule.within
        begun, reading = begun[is_open], reading[is_open]
        arrivals = {place: paths[is_open] for place, paths in arrivals.items()}
        arrivals = _following(rule, arrivals, {step: each[reading] for step, each in fits.items()}, length)
        is_alive = np.logical_or.reduce([np.zeros(len(begun), bool), *(paths > 0 for paths in arrivals.values())])
        begun, arrivals = begun[is_alive], {place: paths[is_alive] for place, paths in arrivals.items()}
        if not len(begun) or len(arrivals) > MOST_PLACES:
            break
    found.may[begun] = True
    return found


def _accepted(rule: Rule, found: Starts, begun: Ints, arrivals: _Arrivals, length: int) -> Bools:
    """Add the costs of these arrivals, and mark the rows from which a match may end here."""
    is_accepted = np.zeros(len(begun), bool)
    for place, paths in arrivals.items():
        there = rule.reach(place)
        found.costs[begun] += paths * there.cost
        if there.accepts and length:  # a match has at least one event
            is_accepted |= paths > 0
    found.may[begun[is_accepted]] = True
    return is_accepted


def _following(rule: Rule, arrivals: _Arrivals, fits: Mapping[str, Bools], length: int) -> dict[int, Floats]:
    """The instructions that the paths reach with the next event."""
    found: dict[int, Floats] = {}
    for place, paths in arrivals.items():
        there = rule.reach(place)
        for step, target in there.takes:
            found[target] = found.get(target, 0.0) + paths * fits[step]
        for target in there.passes if length else ():  # a match begins with an event of its own
            found[target] = found.get(target, 0.0) + paths
    return {target: np.minimum(paths, _MANY) for target, paths in found.items() if paths.any()}
