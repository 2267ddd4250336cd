"""Questions about addresses that wait for a statement: each is answered, whenever it comes."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg_pool import AsyncConnectionPool

from truelog.services.api import rate_limits
from truelog.services.api.rate_limits import _Asked, _Statements

AT = datetime(2026, 1, 1, tzinfo=UTC)
ITERATIONS = 2_000  # of the event loop; far more than all questions need


class Answering(_Statements):
    """Answers each question with its address, after so many iterations of the event loop for each statement."""

    def __init__(self, durations: Sequence[int]) -> None:
        super().__init__(cast(AsyncConnectionPool, None))
        self._durations = durations
        self.statements: list[int] = []  # how many questions each has

    async def _read(self, asked: Sequence[_Asked]) -> list[list[tuple[Any, ...]]]:
        self.statements.append(len(asked))
        await _iterations(self._durations[len(self.statements) % len(self._durations)])
        return [[(each.address,)] for each in asked]


async def _iterations(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


# Two statements that end in one iteration once left the questions that came in it without a statement.
@example(begins=[0, 0], durations=[1])
@given(
    begins=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    durations=st.lists(st.integers(0, 4), min_size=1, max_size=6),
)
def test_law_each_question_is_answered_with_its_rows(begins: list[int], durations: list[int]) -> None:
    async def ask(statements: Answering, number: int, begin: int) -> None:
        await _iterations(begin)
        for each in (f"{number}.{n}" for n in range(3)):
            assert await statements.ask(each, AT) == [(each,)]

    async def ask_all() -> None:
        statements = Answering(durations)
        asking = asyncio.gather(*(ask(statements, number, begin) for number, begin in enumerate(begins)))
        for _ in range(ITERATIONS):
            if asking.done():
                break
            await asyncio.sleep(0)
        assert asking.done(), "a question waits, although no statement runs"
        await asking
        assert sum(statements.statements) == 3 * len(begins)

    asyncio.run(ask_all())


def test_questions_that_wait_are_asked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "_MOST_AT_ONCE", 5)

    async def statements() -> list[int]:
        asked = Answering([3])
        await asyncio.gather(*(asked.ask(str(n), AT) for n in range(12)))
        return asked.statements

    assert asyncio.run(statements()) == [5, 5, 2]
