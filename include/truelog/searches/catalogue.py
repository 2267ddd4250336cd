"""What searches may name: the event types that they search, and their text fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TextSource:
    """What searches may read of an event type.

    fields: the text fields. A word without a field may be in any of them.
    known: the values of a field that searches see. Searches do not see an event with another value.
    """

    fields: Sequence[str]
    known: Mapping[str, Sequence[str]] = field(default_factory=dict)


TextSources = Mapping[str, TextSource]  # by event type
