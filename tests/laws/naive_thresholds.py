"""A naive evaluator of row rules: it knows all steps of a view with their times, and has one loop."""

from collections import defaultdict
from dataclasses import dataclass, field

Rows = dict[str, tuple[str, int] | None]  # by key: product and quantity; None: the row vanishes


@dataclass(frozen=True)
class Threshold:
    """A row fits above `above`. It leaves at or below `above`, or below `until` if that is given."""

    above: int
    until: int | None
    minutes: int
    by_product: bool


@dataclass
class _Tracked:
    """A row that fits since a time, and the incident that it belongs to."""

    since: tuple[int, int]  # the minute, and the number of the step
    row: tuple[str, int]
    incident: "_Incident | None" = None


@dataclass
class _Incident:
    group: str
    members: set[str] = field(default_factory=set)


class NaiveThreshold:
    def __init__(self, rule: Threshold) -> None:
        self.rule, self.steps = rule, 0
        self.tracked: dict[str, _Tracked] = {}
        self.open: dict[str, _Incident] = {}
        self.said = defaultdict[str, list[tuple[str, str]]](list)  # by group: what each notification says, and its text

    def step(self, minute: int, changed: Rows) -> None:
        self.steps += 1
        self.join(minute)
        for key, row in sorted(changed.items()):
            if row is not None and row[1] > self.rule.above:
                before = self.tracked.setdefault(key, _Tracked((minute, self.steps), row))
                before.row = row
        if not self.rule.minutes:
            self.join(minute)
        for key, row in changed.items():
            if key in self.tracked and self.leaves(self.tracked[key], row):
                self.leave(key)

    def leaves(self, tracked: _Tracked, row: tuple[str, int] | None) -> bool:
        if row is None:
            return True
        if tracked.incident is None or self.rule.until is None:
            return row[1] <= self.rule.above
        return row[1] < self.rule.until

    def join(self, minute: int) -> None:
        """Each row that has fitted for long enough belongs to an incident: first the row that has fitted longest."""
        due = [(each.since, key) for key, each in self.tracked.items() if each.incident is None]
        for since, key in sorted(due):
            if since[0] + self.rule.minutes <= minute:
                self.begin_or_join(key, self.tracked[key])

    def begin_or_join(self, key: str, tracked: _Tracked) -> None:
        product, quantity = tracked.row
        group = product if self.rule.by_product else key
        if group not in self.open:
            self.open[group] = _Incident(group)
            self.said[group].append(("opened", f"{product} {key} {quantity}"))
        tracked.incident = self.open[group]
        tracked.incident.members.add(key)

    def leave(self, key: str) -> None:
        incident = self.tracked.pop(key).incident
        if incident is None:
            return
        incident.members.discard(key)
        if not incident.members:
            del self.open[incident.group]
            self.said[incident.group].append(("resolved", self.said[incident.group][-1][1]))
