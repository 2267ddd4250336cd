"""Histories of polls with the verdicts that the lag service stores."""

from collections.abc import Iterable

from truelog.lag.history import ReaderPoll
from truelog.lag.window import LagWindow
from truelog.support.settings import Settings


def judged(settings: Settings, readings: Iterable[ReaderPoll]) -> list[ReaderPoll]:
    """Readings in the order of their times, each judged on those before it."""
    window = LagWindow(settings)
    return [window.judged(each) for each in readings]
