"""Read your own writes: the stated answer to each kind of position token."""

import asyncio
import time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.library.services.api.asking import Asking
from tests.library.services.api.shop_views import IDS, PAGES, at, reach
from truelog.log.positions import Positions
from truelog.services.api.problem import Problem
from truelog.services.api.rows.waiting import Reached, behind
from truelog.storage.database import Connection

ROWS = f"/views/{PAGES}/rows"
OFFSETS = st.dictionaries(st.integers(0, 3), st.integers(0, 9))


@pytest.fixture(autouse=True)
def _at_ten(deployed: Connection) -> None:
    reach(deployed, 10, 10)


def read(api: Asking, positions: Positions, wait: float = 0.2) -> httpx.Response:
    return api.get(ROWS, at_least=positions.as_token(), wait=wait)


def test_a_view_that_has_read_the_events_answers_at_once(api: Asking) -> None:
    for reached in (at(10, 10), at(3), at(0, 9)):
        assert read(api, reached, wait=0).status_code == 200


@pytest.mark.parametrize("wait", [0, 0.2])
def test_a_late_view_says_how_far_behind_it_is(api: Asking, wait: float) -> None:
    late = read(api, at(12, 4), wait)
    assert (late.status_code, late.headers["Retry-After"]) == (409, "1")
    body = late.json()
    assert (body["type"], body["records"], body["behind"]) == (
        "urn:truelog:problem:behind",
        2,
        {"page_view": {"0": 2}},
    )


def test_the_answer_comes_when_the_view_has_read_the_events(api: Asking, deployed: Connection) -> None:
    async def both() -> list[httpx.Response]:
        asked = [
            asyncio.create_task(api.ask("GET", ROWS, params={"at_least": at(11 + n).as_token(), "wait": 10}))
            for n in range(3)
        ]
        while api.questions._reads._watch._waiting[PAGES, 1] < len(asked):
            await asyncio.sleep(0)
        assert not any(each.done() for each in asked)
        await asyncio.to_thread(reach, deployed, 13, 10)
        return await asyncio.gather(*asked)

    began = time.monotonic()
    answers = api.run(both())
    assert [each.status_code for each in answers] == [200, 200, 200]
    assert {each.json()["positions"]["page_view"]["0"] for each in answers} == {13}
    assert time.monotonic() - began < 10
    assert not +api.questions._reads._watch._waiting  # the query ends with the last who waits


def test_an_answer_that_is_made_again_waits_only_for_the_rest_of_the_time(api: Asking) -> None:
    """As after a move of the readers."""
    reads = api.questions._reads
    found = api.run(reads.source(PAGES, "reader"))
    with pytest.raises(Problem, match="lacks 2 records of the token after 600 s"):
        api.run(reads.wait(found, at(12, 4), 600, time.monotonic() - 600))


def test_a_topic_that_the_view_does_not_read_is_not_waited_for(api: Asking) -> None:
    other = Positions({"search": {0: 99}}, {"search": "an-id"})
    assert read(api, other, wait=0).status_code == 200
    both = Positions({"search": {0: 99}, "page_view": {0: 11}}, {"search": "an-id", **IDS})
    assert read(api, both).json()["behind"] == {"page_view": {"0": 1}}


def test_a_dead_letter_is_counted_by_no_view(api: Asking) -> None:
    refused = read(api, Positions({"dead_letter": {0: 5}}, {"dead_letter": "an-id"}), wait=10)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:truelog:problem:dead-letter")


def test_a_topic_that_was_created_again_is_gone(api: Asking) -> None:
    refused = read(api, Positions({"page_view": {0: 1}}, {"page_view": "another-id"}), wait=10)
    assert (refused.status_code, refused.json()["type"]) == (410, "urn:truelog:problem:recreated")


@given(OFFSETS, OFFSETS)
def test_a_view_is_behind_by_exactly_the_records_that_it_lacks(reached: dict[int, int], wanted: dict[int, int]) -> None:
    lacking = behind(
        PAGES,
        Reached(frozenset({"page_view"}), Positions({"page_view": reached}, IDS)),
        Positions({"page_view": wanted}, IDS),
    )
    missing = {partition: end - reached.get(partition, 0) for partition, end in wanted.items()}
    assert lacking.get("page_view", {}) == {partition: number for partition, number in missing.items() if number > 0}
