"""Matches: the sequences of events that fit a rule. `docs/patterns.md` describes rules."""

from rules.sources import SOURCES
from truelog import Patterns

VIEW = Patterns(sources=SOURCES, most=10_000, publish=True)
