"""The dead letters of a time range, without their bytes: their number over time and by reason, and one page of them."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from truelog.dead_letters import ledger as replay_ledger
from truelog.dead_letters.store import DeadLetter, LetterFilter, LetterStore
from truelog.storage.database import connect
from truelog.support.errors import BadInput
from truelog.support.settings import Settings

MOST_READ = 100_000  # dead letters in a time range; they have no index, so each list reads all of them
MOST_BYTES = 64 << 20  # of these dead letters, as their senders posted them
_MOST_REASONS = 20
_STEPS = (60, 300, 900, 3600, 21_600, 86_400, 7 * 86_400)  # seconds
_MOST_STEPS = 75
Order = Literal["received_at", "event_type", "reason", "sender"]


@dataclass(frozen=True)
class LetterQuery:
    """A page of the chosen dead letters. `text` is a part of the field or the reason."""

    hours: float
    event_type: str | None = None
    text: str | None = None
    order: Order = "received_at"
    descending: bool = True
    limit: int = 100
    skip: int = 0

    @property
    def filter(self) -> LetterFilter:
        since = datetime.now(UTC) - timedelta(hours=self.hours)
        return LetterFilter(self.event_type or None, self.text or None, since)

    @property
    def replay(self) -> str:
        """The command that sends the chosen dead letters that are valid now."""
        words = ["truelog", "dead-letters", "replay", "--since", f"{self.hours:g}h"]
        words += ["--type", self.event_type] if self.event_type else []
        return shlex.join(words + (["--reason", self.text] if self.text else []))


@dataclass(frozen=True)
class ListedLetter:
    """`sent` is the topic to which the event was sent again; empty if it was not."""

    partition: int
    offset: int
    received_at: datetime
    event_type: str | None
    field: str
    reason: str
    sender: str
    bytes: int
    sent: str


@dataclass(frozen=True)
class ReasonCount:
    event_type: str | None
    field: str
    reason: str
    letters: int


@dataclass(frozen=True)
class LetterCourse:
    """How many of the chosen dead letters were received in each step; `at` has the beginnings in seconds since 1970."""

    step: int
    at: Sequence[int]
    letters: Sequence[int]


@dataclass(frozen=True)
class LetterReport:
    """`types` covers the whole time range, and all else the chosen letters. `more_reasons` reasons are left out."""

    letters: Sequence[ListedLetter]
    total: int
    course: LetterCourse
    types: Sequence[str]
    reasons: Sequence[ReasonCount]
    more_reasons: int


def dead_letter_report(settings: Settings, query: LetterQuery) -> LetterReport:
    """The report, from the archive and the log.

    Raises:
        BadInput: the time range has too many dead letters.
        ServiceDown: Kafka, PostgreSQL or the object store does not answer.
    """
    chosen = query.filter
    every = read_letters(settings, LetterFilter(since=chosen.since))
    letters = sorted((each for each in every if chosen.accepts(each)), key=lambda each: each.at, reverse=True)
    letters.sort(key=lambda each: getattr(each, query.order) or "", reverse=query.descending)
    reasons = Counter((each.event_type, each.field, each.reason) for each in letters)
    return LetterReport(
        _listed(settings, letters[query.skip : query.skip + query.limit]),
        len(letters),
        _course(letters, query.hours),
        sorted({each.event_type for each in every if each.event_type}),
        [ReasonCount(*reason, count) for reason, count in reasons.most_common(_MOST_REASONS)],
        max(0, len(reasons) - _MOST_REASONS),
    )


def read_letters(settings: Settings, chosen: LetterFilter) -> list[DeadLetter]:
    """The dead letters that the filter accepts, in no particular order.

    Raises:
        BadInput: the time range has too many dead letters.
    """
    store = LetterStore(settings)
    if (found := store.count_records(chosen.since)) > MOST_READ:
        raise BadInput(
            f"this time range has about {found:,} dead letters, and a page reads at most {MOST_READ:,}. Choose a "
            "shorter one. An administrator can run `truelog dead-letters list`"
        )
    letters, size = list[DeadLetter](), 0
    for each in store.read(chosen):
        letters.append(each)
        size += len(each.raw)
        if size > MOST_BYTES:
            raise BadInput(
                f"this time range has more than {MOST_BYTES >> 20} MB of dead letters, which is the most that a page "
                "reads. Choose a shorter one. An administrator can run `truelog dead-letters list`"
            )
    return letters


def _course(letters: Sequence[DeadLetter], hours: float) -> LetterCourse:
    now = int(datetime.now(UTC).timestamp())
    first = now - int(hours * 3600)
    step = next((each for each in _STEPS if (now - first) / each <= _MOST_STEPS), _STEPS[-1])
    at = list(range(first // step * step, now + 1, step))
    counts = Counter(int(each.received_at.timestamp()) // step * step for each in letters)
    return LetterCourse(step, at, [counts[each] for each in at])


def _listed(settings: Settings, letters: Sequence[DeadLetter]) -> list[ListedLetter]:
    with connect(settings) as connection:
        sent = replay_ledger.find_reservations(connection, [each.at for each in letters])
    return [
        ListedLetter(
            each.at.partition,
            each.at.offset,
            each.received_at,
            each.event_type,
            each.field,
            each.reason,
            each.sender,
            len(each.raw),
            sent[each.at].topic if each.at in sent else "",
        )
        for each in letters
    ]
