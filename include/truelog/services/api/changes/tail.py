"""Tails: the steps of one view as the process has read them, and its subscribers."""

from collections import deque
from collections.abc import Iterable, Sequence

from truelog.services.api.changes.filter import Values
from truelog.services.api.changes.outbox import PORTION, PORTION_BYTES, Prepared
from truelog.services.api.changes.place import Place
from truelog.services.api.changes.step import Change, Step
from truelog.services.api.changes.subscriber import Message, Subscriber

_Columns = tuple[str, ...]


class Tail:
    """Follows one version of a view. It keeps recent steps, so that a client that comes back costs no query.

    slots: of the readers that get the version. Others follow it only if they have asked for it.
    """

    def __init__(self, place: Place, slots: range) -> None:
        self.place = place  # up to which subscribers have steps
        self.slots = slots
        self._begin = place  # of the steps that are kept
        self._steps = deque[Step]()
        self._rows = self._bytes = 0
        self._oldest = 0  # the number of the oldest place that the outbox had
        self._groups: dict[_Columns, dict[Values, set[Subscriber]]] = {}

    @property
    def subscribers(self) -> list[Subscriber]:
        return [each for groups in self._groups.values() for group in groups.values() for each in group]

    def is_for(self, prepared: Prepared) -> bool:
        """Whether a subscriber gets this version, or has asked for it."""
        return prepared.slot is None or prepared.slot in self.slots

    def move(self, slots: range, reason: str) -> None:
        """End the subscribers that get another version now."""
        if slots == self.slots:
            return
        self.slots = slots
        for each in self.subscribers:
            if not self.is_for(each.prepared):
                each.resync(reason)

    def add(self, subscriber: Subscriber) -> None:
        prepared = subscriber.prepared
        self._groups.setdefault(prepared.filter.columns, {}).setdefault(prepared.values, set()).add(subscriber)

    def remove(self, subscriber: Subscriber) -> None:
        columns, values = subscriber.prepared.filter.columns, subscriber.prepared.values
        groups = self._groups.get(columns, {})
        groups.get(values, set()).discard(subscriber)
        if not groups.get(values):
            groups.pop(values, None)
        if not groups:
            self._groups.pop(columns, None)

    def tell(self, step: Step) -> int:
        """Send a step to the subscribers whose rows it changes, and return how many. Equal filters share a message."""
        self.place = step.place
        self._keep(step)
        told = 0
        for columns, groups in self._groups.items():
            for values, changes in _grouped(step, columns, groups).items():
                message = step.message(changes)
                for each in tuple(groups[values]):
                    each.put(step.place, message)
                    told += 1
        return told

    def resync(self, reason: str) -> None:
        """End all subscribers: the next step is not known."""
        for each in self.subscribers:
            each.resync(reason)

    def forget_before(self, oldest: int, reason: str) -> None:
        """Forget the steps before this number. A slow subscriber that has not taken one of them begins again."""
        if oldest == self._oldest:
            return
        self._oldest = oldest
        while self._steps and self._steps[0].place.number < oldest:
            self._drop_first()
        for each in self.subscribers:
            each.forget_before(oldest, reason)

    def extend(self, steps: Sequence[Step], begin: Place) -> None:
        """Keep earlier steps too, from `begin` to the first step that is kept."""
        self._begin = begin
        self._steps.extendleft(reversed(steps))
        self._rows += sum(len(each.changes) for each in steps)
        self._bytes += sum(each.size for each in steps)

    def trim(self) -> None:
        """Forget the oldest steps beyond the limits of rows and bytes."""
        while self._rows > PORTION or self._bytes > PORTION_BYTES:
            self._drop_first()

    @property
    def begin(self) -> Place:
        return self._begin

    def messages_after(self, place: Place, prepared: Prepared) -> list[Message] | None:
        """The messages for a filter behind a place. None if the place is not in this history."""
        later, known = list[Step](), self._begin
        for step in reversed(self._steps):  # most clients that come back lack only the newest steps
            if step.place.number <= place.number:
                known = step.place
                break
            later.append(step)
        if known != place:
            return None
        columns, values = prepared.filter.columns, prepared.values
        found = ((step, _grouped(step, columns, {values}).get(values)) for step in reversed(later))
        return [(step.place, step.message(changes)) for step, changes in found if changes]

    def _keep(self, step: Step) -> None:
        self._steps.append(step)
        self._rows += len(step.changes)
        self._bytes += step.size
        self.trim()

    def _drop_first(self) -> None:
        dropped = self._steps.popleft()
        self._begin = dropped.place
        self._rows -= len(dropped.changes)
        self._bytes -= dropped.size


def _grouped(step: Step, columns: _Columns, wanted: Iterable[Values]) -> dict[Values, Sequence[Change]]:
    """The changes of a step by the values of these columns, for the values that someone wants."""
    if not columns:
        return {(): step.changes}
    found: dict[Values, list[Change]] = {}
    for key, change in zip(step.keys, step.changes, strict=True):
        values = tuple(bytes(key[each]) for each in columns)
        if values in wanted:
            found.setdefault(values, []).append(change)
    return {**found}
