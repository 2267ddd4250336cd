"""Tests of the explain page in Chromium: from a row to the events behind it."""

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Route, expect

from runtime.airflow_client import Airflow
from tests.pages.browsing import is_wide_enough, open_page
from tests.pages.plausible import HOSTILE
from tests.pages.plausible_answer import ANSWER
from truelog.history import explain_question
from truelog.history.explain_question import Question
from truelog.storage.database import connect
from truelog.support.settings import Settings


@pytest.fixture
def forgotten(pages: Settings) -> Iterator[None]:
    """No answer is left."""
    yield
    with connect(pages) as connection:
        connection.execute("DELETE FROM truelog.explanation")


@pytest.mark.parametrize("watched", ["oncall"], indirect=True)
def test_a_row_is_explained_by_its_events(
    readable: Settings, planned: Settings, users: dict[str, Airflow], watched: Page, forgotten: None
) -> None:
    open_page(watched, "view?name=page_views&where=host%3D%3DHYPERLINK(1)")
    watched.get_by_role("link", name="Explain").click()
    found = watched.locator("main")
    expect(found).to_contain_text("3 records in 3 files")
    expect(found).to_contain_text("truelog explain page_views 'minute=")
    watched.get_by_role("button", name="Explain").dblclick()
    expect(found.locator(".badge")).to_have_text("Waiting")
    [conf] = [each["conf"] for each in users["oncall"].runs("explain")]
    asked = parse_qs(urlsplit(watched.url).query)
    assert conf == {"view": "page_views", "where": asked["where"], "before": ""}
    assert asked["where"][1:] == ["host==HYPERLINK(1)", "page==HYPERLINK(1)", "browser is NULL"]
    with connect(planned) as connection:
        explain_question.store_answer(connection, Question("page_views", tuple(asked["where"])), ANSWER, "oncall")
    expect(found.locator("h2")).to_contain_text(f"Different The row does not follow {HOSTILE[0]}")
    expect(found.locator("tbody tr")).to_have_count(2)
    expect(found.locator("thead th")).to_have_text(["", "Event", "Event time (UTC)", "Broker time (UTC)", "views"])
    expect(found.locator("tbody tr").first).to_contain_text("no row")
    expect(found.locator("tbody tr").last.locator("td").last).to_have_text("2")
    expect(found).to_contain_text("6 to 7 of 7 events")
    assert is_wide_enough(watched)
    watched.get_by_role("link", name="page_view 0:2").click()
    expect(watched.locator("h1:visible")).to_have_text("page_view 0:2")
    watched.go_back()
    watched.get_by_role("link", name="Earlier events").click()
    expect(watched.get_by_role("link", name="Latest events")).to_have_count(
        0
    )  # before an answer, there is only a question
    expect(watched).to_have_url(re.compile("before=page_view%3A0%3A1"))


def test_the_cost_is_asked_again_after_an_error(readable: Settings, watched: Page) -> None:
    answered: list[Route] = []

    def refuse(route: Route) -> None:
        answered.append(route)
        route.fulfill(status=409, json={"detail": "The object store does not answer"})

    watched.route("**/data/explain/cost?*", refuse, times=1)
    open_page(watched, "explain?view=page_views&where=host+is+NULL")
    expect(watched.get_by_role("button", name="Explain")).to_be_visible()
    assert len(answered) == 1


@pytest.mark.parametrize("watched", ["analyst"], indirect=True)
def test_users_without_the_right_see_what_it_requires_and_no_command(readable: Settings, watched: Page) -> None:
    open_page(watched, "view?name=page_views")
    expect(watched.locator("#answer tbody tr").first).to_be_visible()
    expect(watched.get_by_role("link", name="Explain")).to_have_count(0)
    open_page(watched, "explain?view=page_views&where=host+is+NULL")
    expect(watched.get_by_role("button", name="Explain")).to_be_disabled()
    expect(watched.locator("main")).to_contain_text("Requires permission to trigger the reconcile DAG.")
    expect(watched.locator("main")).not_to_contain_text("truelog explain")


def test_a_view_that_is_not_archived_gives_the_reason(watched: Page) -> None:
    open_page(watched, "explain?view=request_rates&where=host+is+NULL")
    expect(watched.locator("main")).to_contain_text("The view has no table yet, so it has no row to explain")
