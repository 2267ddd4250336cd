"""Notification rule: what sends notifications of rows to a channel, as data.

A rule names what it is about, a channel, the columns whose equal values are one incident, and a template.
"""

import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from string import Template
from typing import Any, ClassVar

import psycopg

from truelog.support.errors import BadInput

log = logging.getLogger("truelog.notifications")

_LOGGED = set[tuple[str, str, str]]()  # names and declarations of rules, and names of their errors


@dataclass(frozen=True)
class NotificationRule(ABC):
    """A rule that has been checked."""

    name: str
    kind: str
    subject: str
    channel: str
    group_by: tuple[str, ...]
    template: str

    last_says: ClassVar[str]  # what the last notification of an incident says

    @property
    @abstractmethod
    def view(self) -> str:
        """The view whose rows it is about."""

    @property
    @abstractmethod
    def incident_seconds(self) -> int:
        """How long an incident takes in further rows."""

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """What only rules of this kind declare."""

    @property
    def declared(self) -> uuid.UUID | None:
        """A hash of what judges rows, if a changed rule judges known rows again."""
        return None

    @abstractmethod
    def fits(self, row: Mapping[str, Any] | None) -> bool:
        """Whether the rule is about this row. None: the row has vanished."""

    @abstractmethod
    def leaves(self, row: Mapping[str, Any] | None) -> bool:
        """Whether a row of an incident no longer belongs to it."""

    @abstractmethod
    def settled_after(self, row: Mapping[str, Any], made_at: datetime) -> Any:
        """What the clock must pass before a row that fits causes a notification. None: it causes one at once."""

    @abstractmethod
    def is_expired(self, key: str, limit: datetime | None) -> bool:
        """Whether a row has only left its view because it is older than the limit of age."""

    @abstractmethod
    def text(self, row: Mapping[str, Any]) -> str:
        """The text of a notification."""


@contextmanager
def apart(rule: NotificationRule) -> Iterator[None]:
    """A defect of a rule on one row stops neither the rule on other rows nor other rules. It is logged once."""
    try:
        yield
    except psycopg.Error:
        raise
    except Exception as error:
        defect = (rule.name, str(rule.declared), type(error).__name__)
        if defect not in _LOGGED:
            _LOGGED.add(defect)
            log.exception("the notification rule %s fails on a row, and goes on without the row", rule.name)


def columns_of(group_by: str | None) -> tuple[str, ...]:
    return tuple(filter(None, (each.strip() for each in (group_by or "").split(","))))


def columns_in(template: str) -> list[str]:
    """The columns that a template names.

    Raises:
        BadInput: the template is not valid.
    """
    try:
        valid, named = Template(template).is_valid(), Template(template).get_identifiers()
    except ValueError:
        valid, named = False, []
    if not valid or not template.strip():
        raise BadInput("template: write columns as $name, and a dollar sign as $$")
    return named


def require_known(named: list[str], known: Mapping[str, Any], of: str) -> None:
    """Raise BadInput if a column is not known."""
    if unknown := sorted({*named} - {each for each in named if each in known}):
        raise BadInput(f"{of} has no column {unknown[0]}; it has {', '.join(known)}")
