"""Matches: the sequences of events that fit a rule. `docs/patterns.md` describes rules."""

from rules.sources import SOURCES
from truelog import Patterns

VIEW = Patterns(sources=SOURCES, most=10_000, keep="400 days", publish=True, owner="platform", version=3)
