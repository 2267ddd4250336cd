"""Judged: a view whose rows follow from events and from rules, which are events themselves.

The view keeps the events as a Group does, and the records of rules in a side table. The rules of the view `matches` are
patterns, and those of `search_hits` are stored searches.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame

from truelog.views.group import Group
from truelog.views.view import View


def no_rules(_: DataFrame) -> DataFrame:
    """The fold before the rules are known."""
    raise AssertionError("the rows of such a view need its rules")


@dataclass(frozen=True, kw_only=True)
class Judged(Group):
    """The declaration of such a view. `sources` are the event types that rules judge, with what rules may name."""

    sources: Mapping[str, Any]

    @property
    @abstractmethod
    def rules_side(self) -> str:
        """The name of the side table of rules."""

    @property
    @abstractmethod
    def named(self) -> object:
        """What rules may name, as a part of the fingerprint."""

    @property
    @abstractmethod
    def language(self) -> int:
        """The number of the language of rules."""

    @abstractmethod
    def rules_table(self) -> View:
        """The side table of the records of rules."""

    def inputs_table(self, inputs: View) -> View:
        """The side table of inputs, which no rule changes."""
        return replace(inputs, reads=tuple(self.sources))
