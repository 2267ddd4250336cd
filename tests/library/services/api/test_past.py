"""Questions about the past over HTTP: how many wait, how long an answer is kept, and pages of one answer.

`tests/library/history/test_as_of.py` asks for real rebuilds.
"""

from typing import Any

import pytest

from tests.library.services.api.asking import Asking, asking
from tests.library.services.api.shop_views import PAGES, count, reach
from truelog.forgetting.stored_texts import forget_reports
from truelog.history import past_question
from truelog.storage.database import Connection
from truelog.support.settings import Settings

ROWS = f"/views/{PAGES}/rows"


@pytest.fixture(autouse=True, scope="module")
def _filled(deployed: Connection) -> None:
    count(deployed, [(f"host{number}.example", None, number) for number in range(3)])
    reach(deployed, 17, 4)


def test_questions_about_the_past_wait_up_to_a_limit(postgresql: Settings, deployed: Connection) -> None:
    """A key may have half of the room. Asking again takes none. What ends two jobs is refused."""
    with asking(postgresql, api_past_questions=4) as api:
        hours = [f"2026-01-01T0{hour}:00:00Z" for hour in range(3)]
        waiting = [api.get(ROWS, as_of=hour) for hour in hours]
        assert [each.status_code for each in waiting] == [202, 202, 429]
        assert waiting[2].headers["Retry-After"] == "10"
        assert api.get(ROWS, as_of="2026-01-01T02:00:00+02:00").json()["past"] == "2026-01-01T00:00:00Z"
        first, second = past_question.begin(deployed, past_question.waiting(deployed))
        assert api.get(ROWS, as_of=hours[0]).json()["state"] == "rebuilding"
        past_question.refuse(deployed, second, past_question.IMPOSSIBLE, "the archive knows the log up to noon")
        late = api.get(ROWS, as_of=hours[1])
        assert (late.status_code, late.json()["type"]) == (409, "urn:truelog:problem:no-past")
        past_question.postpone(deployed, [first])
        for _ in range(2):
            assert past_question.begin(deployed, past_question.waiting(deployed)) == [first]
        assert past_question.waiting(deployed) == []
        assert (failed := api.get(ROWS, as_of=hours[0])).status_code == 503
        assert "2 jobs have ended without an answer" in failed.json()["detail"]


def test_a_past_is_asked_again_once_its_answer_is_old(postgresql: Settings, deployed: Connection) -> None:
    past = {"as_of": "2026-01-01T09:00:00Z"}
    said = {"version": 1, "positions": {}, "as_of": past["as_of"], "clock": None, "more": False}
    with (
        asking(postgresql, api_past_keep_seconds=3_600) as keeping,
        asking(postgresql, api_past_keep_seconds=0) as not_,
    ):
        keeping.get(ROWS, **past)
        [asked] = past_question.waiting(deployed)
        past_question.answer(deployed, asked, said, [f'{{"views":{2**62}}}'])
        assert f'"rows":[{{"views":{2**62}}}]' in keeping.get(ROWS, **past).text
        assert keeping.get(ROWS, **past, limit=1).json()["next"] is None
        assert not_.get(ROWS, **past).status_code == 202
        begun = past_question.begin(deployed, past_question.waiting(deployed))
        forget_reports(postgresql, deployed, [PAGES])
        assert past_question.begin(deployed, begun) == []
        assert keeping.get(ROWS, **past).status_code == 202  # the client asks again before the job ends
        past_question.answer(deployed, begun[0], said, ['{"views":1}'])
        assert keeping.get(ROWS, **past).status_code == 202
        forget_reports(postgresql, deployed, [PAGES])


def test_a_walk_over_the_past_ends_with_its_answer(api: Asking, postgresql: Settings, deployed: Connection) -> None:
    """A page is never a part of another answer, and asks for none."""
    past = {"as_of": "2026-01-01T08:00:00Z", "limit": "2"}
    said = {"version": 1, "positions": {}, "as_of": past["as_of"], "clock": None, "more": True}
    stored = [f'{{"views":{number}}}' for number in range(3)]

    def answered() -> Any:
        api.get(ROWS, **past)
        [asked] = past_question.waiting(deployed)
        past_question.answer(deployed, asked, said, stored)
        return api.get(ROWS, **past).json()

    first = answered()
    assert (first["rows"], first["more"]) == ([{"views": 0}, {"views": 1}], True)
    last = api.get(ROWS, **past, cursor=first["next"]).json()
    assert (last["rows"], last["more"], last["next"]) == ([{"views": 2}], True, None)
    for other in ({"as_of": "2026-01-01T07:00:00Z"}, {"columns": "views"}, {"order": "-views"}):
        assert api.get(ROWS, **past | other, cursor=first["next"]).status_code == 422
    present = api.get(ROWS, limit=2).json()["next"]
    assert api.get(ROWS, cursor=first["next"]).status_code == 422
    assert api.get(ROWS, **past, cursor=present).status_code == 422
    forget_reports(postgresql, deployed, [PAGES])
    gone = api.get(ROWS, **past, cursor=first["next"])
    assert (gone.status_code, gone.json()["type"]) == (409, "urn:truelog:problem:moved")
    assert past_question.waiting(deployed) == []
    assert answered()["rows"] == first["rows"]
    assert api.get(ROWS, **past, cursor=first["next"]).status_code == 409
    forget_reports(postgresql, deployed, [PAGES])


def test_a_scoped_token_does_not_ask_about_the_past(api: Asking, deployed: Connection) -> None:
    """Otherwise, the visitors of a site could start rebuilds."""
    held = api.request("POST", "/tokens", json={"view": PAGES, "key": {"host": "wiki.example"}}).json()["token"]
    refused = api.get(ROWS, held, as_of="2026-01-01T10:00:00Z")
    assert (refused.status_code, "the back end's API key may" in refused.json()["detail"]) == (403, True)
    assert past_question.waiting(deployed) == []
