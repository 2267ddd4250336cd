"""What versions of rules find among the events of many groups: the same as `outcomes` finds in each group alone.

For each version, the groups are searched in which a match may begin. A search may also be too costly, so groups are
searched whose other rows might cost more than the budget of a search. The rest has no rows.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from truelog.patterns import matcher
from truelog.patterns.matcher import Event, Searched
from truelog.patterns.outcomes import Outcome, of_searches, outcomes
from truelog.patterns.rule import Rule
from truelog.patterns.together.events import Bools, Events, Ints
from truelog.patterns.together.starts import Starts, find_starts
from truelog.patterns.together.truth import Rows, Truths
from truelog.patterns.versions import Ends, Version, offset_in

FEW = 64  # events, which are searched faster without arrays
_NEVER = 2**62  # a limit beyond all offsets


def outcomes_of_groups(
    versions: Sequence[Version[Rule]], entity: str, events: Events, few: int = FEW
) -> Iterator[tuple[int, Outcome]]:
    """What the versions find among the events of this entity's groups, each with the number of its group."""
    if len(events) < few:
        for group in events.ranges:
            for each in outcomes(versions, entity, events.listed(group)):
                yield group, each
        return
    together = _Together(events)
    for version in versions:
        if version.rule.entity == entity:
            yield from together.outcomes(version)


class _Search(NamedTuple):
    """The search of some rows in all groups."""

    rows: Rows
    starts: Starts

    @property
    def promising(self) -> Bools:
        """The groups in which a match may begin."""
        return self.rows.sums(self.starts.may.astype(np.float64)) > 0

    def of_group(self, group: int, listed: Sequence[Event], begin: int, every: Sequence[Event]) -> Searched:
        """The search of one group, given its events, the number of the first event, and the events that count."""
        chosen = self.rows.rows_of(group)
        rows = [listed[number - begin] for number in self.rows.numbers[chosen].tolist()]
        may, costs = self.starts.may[chosen], self.starts.costs[chosen]
        return Searched(rows, every, may.tolist(), float(costs[~may].sum()))


class _Together:
    """The search of events, rule by rule. What rules have in common is computed once."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._truths = Truths(events)
        self._delay = events.logged_at - events.at
        self._rows: dict[tuple[bytes, bytes], Rows] = {}

    def outcomes(self, version: Version[Rule]) -> Iterator[tuple[int, Outcome]]:
        rule, events = version.rule, self._events
        begun = events.offset >= self._begins(rule.event_types, version.begins)[events.place]
        is_late = begun & (self._delay > rule.late_after)
        every = self._search(rule, self._rows_of(version))
        timely = self._timely(rule, every.rows, is_late) if is_late.any() else None
        late = frozenset(events.group[is_late].tolist())
        for group in _worth_a_search(every, timely):
            listed, chosen = events.listed(group), events.ranges[group]
            read, in_time = _chosen(listed, begun[chosen]), None
            if timely is not None and group in late:
                counted = _chosen(listed, (begun & ~is_late)[chosen])
                in_time = timely.of_group(group, listed, chosen.start, counted)
            for each in of_searches(version, every.of_group(group, listed, chosen.start, read), in_time):
                yield group, each

    def _timely(self, rule: Rule, rows: Rows, is_late: Bools) -> _Search:
        """The search of the rows in time, in the groups with late events."""
        has_late = np.isin(rows.group, self._events.group[is_late])
        return self._search(rule, rows.only(has_late & ~is_late[rows.numbers]))

    def _search(self, rule: Rule, rows: Rows) -> _Search:
        fits = {}
        for name, each in rule.steps.items():
            is_of_type = np.array([topic == each.event_type for topic, _ in self._events.places], bool)
            fits[name] = self._truths.of(each.where, rows).may_be_true & is_of_type[rows.place]
        return _Search(rows, find_starts(rule, rows, fits))

    def _rows_of(self, version: Version[Rule]) -> Rows:
        """The rows of the rule. Versions with the same limits for these events share them."""
        events = self._events
        begins, ends = self._begins(version.rule.row_types, version.begins), self._ends(version.ends)
        key = begins.tobytes(), ends.tobytes()
        if key not in self._rows:
            chosen = (events.offset >= begins[events.place]) & (events.offset < ends[events.place])
            self._rows[key] = Rows(events, np.flatnonzero(chosen))
        return self._rows[key]

    def _begins(self, types: frozenset[str], begins: Ends) -> Ints:
        """The offset from which on the events of each place count, if they are of these types."""
        found = []
        for (topic, partition), (least, _) in zip(self._events.places, self._offsets, strict=True):
            limit = offset_in(begins, topic, str(partition)) if topic in types else _NEVER
            found.append(0 if limit <= least else limit)
        return np.array(found, np.int64)

    def _ends(self, ends: Ends | None) -> Ints:
        """The offset from which on the events of each place no longer count."""
        found = []
        for (topic, partition), (_, greatest) in zip(self._events.places, self._offsets, strict=True):
            limit = _NEVER if ends is None else offset_in(ends, topic, str(partition))
            found.append(_NEVER if limit > greatest else limit)
        return np.array(found, np.int64)

    @cached_property
    def _offsets(self) -> Sequence[tuple[int, int]]:
        """The least and the greatest offset of each place."""
        events = self._events
        of_place = (events.offset[events.place == place] for place in range(len(events.places)))
        return [(int(each.min()), int(each.max())) for each in of_place]


def _worth_a_search(every: _Search, timely: _Search | None) -> list[int]:
    """The groups in which a match may begin, and the groups whose searches might exceed their budget."""
    rows = every.rows
    is_promising, costs = every.promising, rows.sums(every.starts.costs)
    if timely is not None:
        place = np.searchsorted(rows.groups, timely.rows.groups)
        is_promising[place] |= timely.promising
        costs[place] += timely.rows.sums(timely.starts.costs)
    may_be_costly = costs > matcher.BUDGET + matcher.BUDGET_OF_EVENT * np.diff(rows.bounds)
    return list(map(int, rows.groups[is_promising | may_be_costly]))


def _chosen(listed: Sequence[Event], chosen: Bools) -> Sequence[Event]:
    return listed if chosen.all() else [each for each, is_in in zip(listed, chosen.tolist(), strict=True) if is_in]
