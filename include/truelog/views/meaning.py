"""Meaning: what a relation shows, for people who find it in PostgreSQL."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Meaning:
    """about: what the rows of a relation are. columns: the meaning of each column that has no other meaning yet."""

    about: str
    columns: Mapping[str, str] = field(default_factory=dict)
