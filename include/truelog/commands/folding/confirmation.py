"""Confirms that states contain the log up to an end that it had after the confirmation began.

A database that was restored from a backup lacks decisions whose events are in the log, and so do states that are made
again. An open transaction belongs to the log, because it may be about to commit. Each fold is confirmed alone, and
decisions never wait for Kafka: `work` belongs into a thread of its own.
"""

import logging
import uuid
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from threading import Event as Flag
from time import monotonic

import psycopg

from truelog.commands.catalogue import Catalogue
from truelog.commands.folding.fold_positions import FoldStatus, statuses
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.storage.kept_sessions import kept
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings

log = logging.getLogger(__name__)

_RETRY_SECONDS = 3.0  # between two questions to Kafka about the same states
_PAUSE_SECONDS = 0.1  # before the second look; each later pause is twice as long, up to the time above


@dataclass(frozen=True)
class _Answer:
    """What Kafka said about a topic, asked when the states had this generation: its end, or why there is none."""

    generation: uuid.UUID
    at: float
    topic_id: str = ""
    ends: Mapping[int, int] = field(default_factory=dict)
    reason: str | None = None

    def is_usable(self, fold: FoldStatus) -> bool:
        return self.reason is None and (self.generation, self.topic_id) == (fold.generation, fold.topic_id)

    def is_final(self, fold: FoldStatus) -> bool:
        """Whether another question about these states must wait."""
        is_recent = monotonic() - self.at < _RETRY_SECONDS
        return self.is_usable(fold) or (self.generation == fold.generation and is_recent)


class Confirmation:
    """The generations of the states that are confirmed, and the reason for each fold whose states are not."""

    def __init__(self, settings: Settings, catalogue: Catalogue, user: KafkaUser = KafkaUser.READER) -> None:
        self._user = user
        self.generations: dict[str, uuid.UUID] = {}
        self.has_looked = Flag()
        self._settings = settings
        self._codes = catalogue.codes
        self._reasons = dict.fromkeys(self._codes, "Kafka has not answered yet how far the states must be read.")
        self._answers: dict[str, _Answer] = {}
        self._pause, self._due = _PAUSE_SECONDS, 0.0

    def missing(self, events: Iterable[str]) -> dict[str, str]:
        """Why nothing can be decided on the states of these event types. Empty if all are confirmed."""
        wanted = [event for event in events if event not in self.generations]
        return {event: self._reasons.get(event, f"No command reads {event}.") for event in wanted}

    def withdraw(self, events: Iterable[str]) -> None:
        """The states of these event types have another generation, so they must be confirmed again."""
        for event in events:
            self._reasons[event] = _made_again(event)
            self.generations.pop(event, None)
        self._pause, self._due = _PAUSE_SECONDS, 0.0

    def work(self) -> None:
        """Look, ever more rarely while the same states are missing."""
        if monotonic() >= self._due:
            self.look()
            self._due = monotonic() + self._pause
            self._pause = min(2 * self._pause, _RETRY_SECONDS)

    def look(self) -> None:
        """Confirm the states that contain the log. During an outage of Kafka, this takes seconds."""
        if lacking := self._codes.keys() - self.generations.keys():
            try:
                self._confirm(lacking)
            except psycopg.Error:
                self._reasons.update(dict.fromkeys(lacking, "The database does not answer."))
            except Exception as error:  # a defect, which must not end the thread
                reason = f"The states cannot be confirmed: {type(error).__name__}."
                if reason not in self._reasons.values():
                    log.exception("no states are confirmed")
                self._reasons.update(dict.fromkeys(lacking, reason))
        self.has_looked.set()

    def _confirm(self, lacking: Set[str]) -> None:
        with kept(self._settings) as connection:
            self._ask(lacking, statuses(connection))
            found = statuses(connection)
        for event in sorted(lacking):
            reason = self._reason(event, found.get(event))
            if reason is None:
                self.generations[event] = found[event].generation
            else:
                self._reasons[event] = reason

    def _ask(self, lacking: Set[str], found: Mapping[str, FoldStatus]) -> None:
        """Ask Kafka for ends. An end counts only for the generation that was there before the question."""
        due = {e for e in lacking & found.keys() if e not in self._answers or not self._answers[e].is_final(found[e])}
        if not due:
            return
        try:
            ends, refused = topics.ends_of_existing(topics.client(self._settings, self._user), due)
        except ServiceDown as down:
            reasons, positions = dict.fromkeys(due, str(down)), Positions()
        else:
            reasons, positions = refused | {topic: why for (topic, _), why in ends.unknown.items()}, ends.positions
        for event in due:
            reason, id_ = reasons.get(event), positions.ids.get(event, "")
            offsets = positions.offsets.get(event, {})
            self._answers[event] = _Answer(found[event].generation, monotonic(), id_, offsets, reason)

    def _reason(self, event: str, fold: FoldStatus | None) -> str | None:
        """Why the states of a fold are not confirmed, or None if they contain the log."""
        if fold is None:
            return _made_again(event)
        if fold.code != self._codes[event]:
            return (
                f"The states of {event} were made by other code. Restart the service `commands` and the collectors, so "
                "that all of them have read the same files."
            )
        answer = self._answers.get(event)
        if answer is not None and answer.reason is not None:
            return answer.reason
        if answer is None or not answer.is_usable(fold):
            return _made_again(event)
        if any(fold.offsets.get(partition, 0) < end for partition, end in answer.ends.items()):
            return f"{event} has not been read to the end. Is the service `commands` running?"
        return None


def _made_again(event: str) -> str:
    return f"The states of {event} are being made again from the log, unless the service `commands` is down."
