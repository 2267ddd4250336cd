"""The example shop in Chromium, with collector, commands, API and a stream: `make browser`.

Visitors press the buttons, go offline and back. Their events are then in the views, and the page shows the rows.
"""

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, expect

import runtime
from demo import shop as demo_shop
from runtime import ports
from tests.beds.world import World, known
from tests.chosen_views import copy_views
from tests.deadline import deadline, until
from tests.pages.axe import SERIOUS, accessibility_problems
from tests.pages.browsing import collect_page_errors
from tests.scenes.applications import start
from truelog.support.errors import ServiceDown

LIKES = "/views/post/rows"
VIEWS = ("page_views", "cart", "home_timeline", "post", "click_through")
SERVICES = ("ticks", "commands", "collector", "api")


@dataclass
class Shop:
    """The shop's address, and the views of its events."""

    address: str
    world: World

    def expect(self, query: str, *wanted: tuple[Any, ...]) -> None:
        """Wait until the query has these rows."""

        def require() -> None:
            if (found := self.world.ask(query)) != list(wanted):
                raise ServiceDown(f"{query}: {found}")

        until(require, 60, "the rows of the views")


@pytest.fixture(scope="module")
def shop(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = copy_views(tmp_path_factory.mktemp("views"), *VIEWS)
    address = f"http://127.0.0.1:{ports.free({'shop': ports.of_this_process()})['shop']}"
    with known(world.settings, views_folder=str(folder), api_origins=address) as settings:
        runtime.up(settings, SERVICES, tethered=True)
        stream = start(settings, "stream.py")
        stream.kept = True
        assert demo_shop.start(settings) == address
        world.catch_up(stream, "post", ("post",), 300)
        yield Shop(address, world)
        demo_shop.stop(settings.home)
        stream.die()
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)


@pytest.fixture
def context(chromium: Browser, shop: Shop) -> Iterator[BrowserContext]:
    """A new visitor, whose pages have no errors."""
    context = chromium.new_context(base_url=shop.address)
    context.set_default_timeout(deadline(30_000))
    errors = collect_page_errors(context)
    yield context
    context.close()
    assert [each for each in chain.from_iterable(errors) if "Failed to load resource" not in each] == []


def opened(context: BrowserContext, path: str = "/") -> Page:
    return shown(context.new_page(), path)


def shown(page: Page, path: str = "/") -> Page:
    page.goto(path)
    expect(page.locator("#products article").first).to_be_attached()
    return page


def recorded(page: Page) -> list[str]:
    """The list to which the path of each request of the page is added."""
    paths: list[str] = []
    page.on("request", lambda request: paths.append(urlsplit(request.url).path))
    return paths


def reads_likes(request: Request) -> bool:
    return urlsplit(request.url).path == LIKES


def require_quiet(paths: list[str], clock: Page) -> None:
    """A page has asked nothing while another page has read its likes five times, once a second."""
    asked = len(paths)
    for _ in range(5):
        with clock.expect_request(reads_likes):
            pass
    if paths[asked:]:
        raise ServiceDown(f"the page has asked for {paths[asked:]}")


def visitor(context: BrowserContext) -> str:
    [cookie] = [each for each in context.cookies() if each.get("name") == "visitor"]
    return str(cookie.get("value")).partition(".")[0]


def test_a_visitor_searches_likes_and_buys(shop: Shop, context: BrowserContext) -> None:
    """Everything is in the views, and the page shows it without a reload."""
    page = opened(context)
    page.get_by_label("Search", exact=True).fill("oak")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#products article")).to_have_count(2)
    page.get_by_role("link", name="Oak chair").click()
    expect(page.get_by_role("heading", name="Oak chair")).to_be_visible()
    page.get_by_role("button", name="Like", exact=True).click()
    expect(page.locator("#product")).to_contain_text("1 likes")
    for _ in range(2):
        page.get_by_role("button", name="Add to cart").click()
    expect(page.locator("#cart li")).to_contain_text("Oak chair (2)")
    page.get_by_role("button", name="Unlike").click()
    expect(page.locator("#product")).to_contain_text("0 likes")

    me = visitor(context)
    shop.expect(f"SELECT product, quantity FROM views.cart WHERE cart_id = '{me}'", ("chair", 2))
    shop.expect("SELECT likes FROM views.post WHERE post_id = 'chair'", (0,))
    shop.expect("SELECT sum(views)::int FROM views.page_views WHERE page = '/products/chair'", (1,))
    shop.expect("SELECT count(*)::int FROM views.click_through", (1,))


def test_a_refused_command_says_why(shop: Shop, context: BrowserContext) -> None:
    page = opened(context, "/products/rug")
    page.get_by_role("button", name="Check out").click()
    expect(page.get_by_role("status")).to_have_text("the cart is empty")
    page.get_by_role("button", name="Add to cart").click()
    page.get_by_role("button", name="Remove").click()
    expect(page.locator("#cart li")).to_have_count(0)


def test_a_tweet_is_in_the_timeline_of_its_author_only(shop: Shop, context: BrowserContext, chromium: Browser) -> None:
    """What a visitor says is text, whatever it contains."""
    page = opened(context)
    expect(page.locator("#timeline")).to_contain_text("Welcome")
    hostile = "<img src=x onerror=alert(1)>"
    page.get_by_label("Say something").fill(hostile)
    page.get_by_role("button", name="Say").click()
    expect(page.locator("#timeline li").first).to_have_text(hostile)
    assert page.locator("#timeline img").count() == 0
    stranger = chromium.new_context(base_url=shop.address)
    other = opened(stranger)
    expect(other.locator("#timeline")).to_contain_text("Welcome")
    expect(other.locator("#timeline")).not_to_contain_text("onerror")
    stranger.close()


def test_a_visitor_who_is_offline_loses_nothing(shop: Shop, context: BrowserContext) -> None:
    page = opened(context, "/products/lamp")
    expect(page.locator("#product")).to_contain_text("0 likes")
    me = visitor(context)
    context.set_offline(True)
    page.get_by_role("button", name="Like", exact=True).click()
    page.get_by_role("button", name="Add to cart").click()
    expect(page.get_by_role("status")).to_have_text(re.compile("No connection"))
    context.set_offline(False)
    expect(page.locator("#cart li")).to_contain_text("Desk lamp (1)")
    expect(page.locator("#product")).to_contain_text("1 likes")
    expect(page.get_by_role("status")).to_have_text("")
    shop.expect(f"SELECT product, quantity FROM views.cart WHERE cart_id = '{me}'", ("lamp", 1))
    shop.expect("SELECT likes FROM views.post WHERE post_id = 'lamp'", (1,))


def test_a_page_asks_nothing_while_nothing_changes(shop: Shop, context: BrowserContext) -> None:
    """A change of the cart in another tab makes the page read the cart, and nothing else."""
    page = context.new_page()
    paths = recorded(page)
    shown(page)
    expect(page.locator("#timeline")).to_contain_text("Welcome")
    other = opened(context, "/products/rug")
    until(lambda: require_quiet(paths, other), 90, "a page that asks nothing")
    assert Counter(paths)["/views/cart/changes"] == 1
    asked = len(paths)
    other.get_by_role("button", name="Add to cart").click()
    expect(page.locator("#cart li")).to_have_count(1)
    assert set(paths[asked:]) == {"/views/cart/rows"}


def test_a_page_follows_on_after_the_api_was_away(shop: Shop, context: BrowserContext) -> None:
    """Also a page whose stream of changes is refused, because readers get the batch layer."""
    page = context.new_page()
    page.route("**/changes?*", refuse)
    paths = recorded(shown(page))
    expect(page.locator("#timeline")).to_contain_text("Welcome")
    other = opened(context, "/products/desk")
    other.get_by_role("button", name="Add to cart").click()
    expect(page.locator("#cart li")).to_have_count(1)
    page.unroute("**/changes?*")
    until(lambda: require_quiet(paths, other), 90, "a page that asks nothing")
    kill_api(shop.world)
    other.get_by_role("button", name="Add to cart").click()
    expect(page.locator("#cart li")).to_contain_text("(2)")


def kill_api(world: World) -> None:
    """The supervisor starts the service again."""
    [pid] = [each.pid for each in runtime.status(world.settings) if each.name == "api"]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def refuse(route: Route) -> None:
    route.fulfill(status=503, headers={"Access-Control-Allow-Origin": "*"})


def test_a_hidden_page_follows_nothing(shop: Shop, context: BrowserContext) -> None:
    """A browser opens six streams to one server at most."""
    page, other = opened(context), opened(context, "/products/clock")
    expect(page.locator("#timeline")).to_contain_text("Welcome")
    hide(page, is_hidden=True)
    paths = recorded(page)
    other.get_by_role("button", name="Add to cart").click()
    expect(other.locator("#cart li")).to_have_count(1)
    require_quiet(paths, other)
    assert page.locator("#cart li").count() == 0
    hide(page, is_hidden=False)
    expect(page.locator("#cart li")).to_have_count(1)


def hide(page: Page, *, is_hidden: bool) -> None:
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


def test_the_shop_has_no_serious_accessibility_problem(shop: Shop, chromium: Browser) -> None:
    """Also with a full cart. The policy of the shop does not allow the script of the examination, so it is off."""
    examined = chromium.new_context(base_url=shop.address, bypass_csp=True)
    for path in ("/", "/products/lamp"):
        page = opened(examined, path)
        expect(page.locator("#timeline")).to_contain_text("Welcome")
        if path != "/":
            page.get_by_role("button", name="Add to cart").click()
            expect(page.locator("#cart li")).to_have_count(1)
        assert accessibility_problems(page, impacts=SERIOUS) == []
    examined.close()


def test_a_visitor_reads_no_other_rows(shop: Shop, context: BrowserContext, chromium: Browser) -> None:
    """The cookie says whose rows, and the token permits no others."""
    stranger = chromium.new_context(base_url=shop.address)
    opened(stranger, "/products/lamp").get_by_role("button", name="Add to cart").click()
    theirs = visitor(stranger)
    shop.expect(f"SELECT product, quantity FROM views.cart WHERE cart_id = '{theirs}'", ("lamp", 1))
    stranger.close()
    opened(context)
    granted = context.request.post("/tokens/cart").json()
    api = shop.world.settings.address("api")
    ask = f"http://127.0.0.1:{api.port}{granted['path']}"
    answer = httpx.get(ask, headers={"Authorization": f"Bearer {granted['token']}"})
    assert (answer.status_code, answer.json()["rows"]) == (200, [])
    whose = {"where": f"cart_id={theirs}"}
    other = httpx.get(ask, params=whose, headers={"Authorization": f"Bearer {granted['token']}"})
    assert (other.status_code, other.json()["rows"]) == (200, [])
    for name in ("page_views", "nothing"):
        assert context.request.post(f"/tokens/{name}").status == 404
    assert context.request.post("/commands/claim_username", data={"username": "x"}).status == 404
    assert httpx.post(f"{shop.address}/tokens/cart").status_code == 404  # without a cookie


def test_nobody_takes_the_name_of_another(shop: Shop, context: BrowserContext) -> None:
    """The name of the shop is in public events, but its cookie is signed."""
    opened(context)
    for cookie in ("shop", "shop.", f"shop.{'0' * 64}"):
        cookies = {"visitor": cookie}
        said = httpx.post(f"{shop.address}/tweets", json={"text": "I am the shop"}, cookies=cookies)
        assert said.status_code == 422
        assert httpx.post(f"{shop.address}/tokens/cart", cookies=cookies).status_code == 404
