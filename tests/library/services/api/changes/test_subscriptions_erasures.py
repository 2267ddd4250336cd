"""What an erasure removes is no longer pushed, from memory either."""

import asyncio

import pytest

from tests.builders.erasures import forget_erasures, lacks
from tests.deadline import until
from tests.library.relay.published import Published
from tests.library.services.api.streaming import Served
from truelog.relay.view_feed import ViewFeed
from truelog.services.api.changes.filter import Filter
from truelog.services.api.changes.outbox import Prepared
from truelog.services.api.changes.place import Place
from truelog.services.api.changes.subscriber import Subscriber
from truelog.services.api.rows.catalogue import Relation
from truelog.support.errors import ServiceDown


def require_forgotten(api: Served, view: Published) -> None:
    tail = api.subscriptions._tails[view.compiled.name, 1]
    if tail.begin.number < view.number() - 1:
        raise ServiceDown(f"the steps behind {tail.begin.number} are kept")


def test_what_an_erasure_has_trimmed_is_not_served_from_memory(api: Served, view: Published) -> None:
    """A client that comes back to a place before the erasure begins again, while another client follows the view."""
    view.change({"p1": "1"})
    with api.following(view.compiled.name) as told:
        told.next()
        before = told.place
        view.change({"xanthippe": "7"})
        view.change({}, "xanthippe")
        view.change({"p1": "2"})  # as `pass_by` puts another row behind the removal
        told.read_to(view.number() - 1)
        after = told.place
        told.read_to(view.number())
        ViewFeed(view.settings, view.connection, view.compiled.name, 1).trim(view.number(), at_once=True)
        until(lambda: require_forgotten(api, view), 20, "the API to forget")
        with api.following(view.compiled.name, after=before) as later:
            first, second = later.next(), later.next()
            assert first is not None
            assert second is not None
            assert (first.name, second.name) == ("resync", "rows")
            assert "xanthippe" not in str(second.data)
        with api.following(view.compiled.name, after=after) as later:
            last = later.next()
            assert last is not None
            assert (last.name, last.data["number"]) == ("change", view.number())
        assert "xanthippe" not in str(vars(api.subscriptions._tails[view.compiled.name, 1])["_steps"])


@pytest.mark.parametrize(("oldest", "begins_again"), [(3, False), (4, True)])
def test_a_subscriber_that_has_not_taken_a_trimmed_step_begins_again(oldest: int, begins_again: bool) -> None:
    """The step with the number of the oldest place is still known."""

    async def taken() -> list[bytes | None]:
        found = Subscriber(Prepared(Filter(Relation("sales", ("product",), {}, {}), ()), 1, (), ()))
        found.begin(Place(1, 3, "of 3"), [(Place(1, 3, "of 3"), b"xanthippe")])
        found.put(Place(1, 4, "of 4"), b"the removal")
        found.forget_before(oldest, "gone")
        return [await found.take(0.0), await found.take(0.0)]

    first, second = asyncio.run(taken())
    if begins_again:
        assert first is not None
        assert (first.startswith(b"event: resync"), second) == (True, None)
    else:
        assert (first, second) == (b"xanthippe", b"the removal")


def test_a_restored_database_that_lacks_erasures_is_not_followed(api: Served, view: Published) -> None:
    view.change({"p1": "1"})
    with api.following(view.compiled.name) as told:
        told.next()
        lacks(view.connection, 1)
        end = told.next()
        assert end is not None
        assert (end.name, "held back" in end.data["reason"]) == ("resync", True)
    refused = api.refused(view.compiled.name)
    assert (refused.status_code, "truelog archive adopt" in refused.json()["detail"]) == (503, True)
    forget_erasures(view.connection)
    with api.following(view.compiled.name) as told:
        told.next()
        assert told.rows == view.rows()
