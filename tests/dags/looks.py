"""Runs a trigger until it fires or has looked a number of times.

A trigger that never looks does not fire either, so a test counts the looks and not the time.
"""

import asyncio
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tests.deadline import deadline


class NothingFoundError(Exception):
    """The trigger has read what it watches several times and has not fired."""


def payload(trigger: Any, *, looks: int | None = None, meanwhile: Callable[[], object] | None = None) -> Any:
    """The payload of the event that a trigger fires; None if the trigger has looked `looks` times and has not fired.

    `meanwhile` happens between the first look and the second.
    """
    watch, numbers = trigger.watch, itertools.count(1)

    async def watch_counted(settings: Any, connection: Any) -> Any:
        async def look(*query: Any) -> Any:
            number = next(numbers)
            if number == 2 and meanwhile:
                meanwhile()
            if looks is not None and number > looks:
                raise NothingFoundError
            return await connection.execute(*query)

        return await watch(settings, SimpleNamespace(execute=look))

    async def fire() -> Any:
        return await asyncio.wait_for(anext(trigger.run()), deadline(30))

    trigger.watch = watch_counted
    with mock.patch(f"{type(trigger).__module__}.POLL_SECONDS", 0.05):
        try:
            return asyncio.run(fire()).payload
        except NothingFoundError:
            return None
