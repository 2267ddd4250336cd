"""Live push on real tables: the rows at a number and then each change, without a gap or a repetition."""

import threading
from datetime import timedelta
from random import Random

import pytest

from tests.builders.notifications import without_its_file
from tests.builders.outputs import another_history, deploy_and_settle, older
from tests.deadline import until
from tests.library.relay.published import EXACT, Published, declared
from tests.library.services.api.streaming import Served, serving
from truelog.relay.view_feed import ViewFeed
from truelog.services.api.changes import outbox as api_outbox
from truelog.services.api.changes import stream, subscriber, subscriptions, tail
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings
from truelog.tables.output import outbox


def begin_again(view: Published) -> None:
    """What `truelog output resync` does."""
    with view.connection.transaction():
        outbox.begin(view.connection, view.compiled)


def require_subscribers(api: Served, number: int) -> None:
    if (found := api.subscribers) != number:
        raise ServiceDown(f"{found} subscribers, not {number}")


def test_first_the_rows_and_then_each_change(api: Served, view: Published) -> None:
    view.change({"p1": EXACT, "p2": "2"})
    with api.following(view.compiled.name) as told:
        assert told.answer.headers["Content-Type"].startswith("text/event-stream")
        assert told.answer.headers["X-Accel-Buffering"] == "no"
        first = told.next()
        assert first is not None
        assert (first.name, first.data["number"], first.data["key"]) == ("rows", 2, ["product"])
        assert told.rows == view.rows()
        view.change({"p3": "3"}, "p2")
        change = told.next()
        assert change is not None
        assert [bytes(each["row"]) == b"null" for each in change.data["changes"]] == [True, False]
        assert (change.data["number"], change.id.split(".")[:2]) == (4, ["1", "4"])
        assert told.rows == view.rows()
    until(lambda: require_subscribers(api, 0), 20, "the end of the subscription")
    assert api.subscriptions._tails == {}


def test_every_subscriber_arrives_at_the_table_whenever_it_begins(api: Served, view: Published) -> None:
    """It gets each change once and in order, beside a writer that does not wait."""
    ended = threading.Event()

    def write() -> None:
        with connect(view.settings, autocommit=True) as view.connection:
            while not ended.is_set():
                view.change_at_random()

    view.change({"p0": "1"})
    writer, own = threading.Thread(target=write), view.connection
    writer.start()
    ends = []
    for begin in range(8):
        with api.following(view.compiled.name) as told:
            told.read_to(10 * begin)
            told.read_to(told.numbers[0] + 15)
            ends.append((told.place, told.rows, told.numbers))
    ended.set()
    writer.join()
    view.connection = own
    view.change({"p1": "7"})
    steps = [
        last
        for (last,) in own.execute(
            "SELECT last FROM truelog.output_step WHERE view = %s ORDER BY last", (view.compiled.name,)
        )
    ]
    for place, rows, numbers in ends:
        assert numbers == [last for last in steps if numbers[0] <= last <= numbers[-1]]
        with api.following(view.compiled.name, after=place) as later:
            later.rows, later.numbers = dict(rows), list(numbers)
            later.read_to(view.number())
            assert later.rows == view.rows()
            assert later.numbers == [last for last in steps if numbers[0] <= last]


def test_a_client_goes_on_at_every_step(api: Served, view: Published) -> None:
    """The first event is the next step, with all of its ten rows."""
    for each in range(4):
        view.change({f"p{n}": str(each) for n in range(10)})
    query = "SELECT last, id::text FROM truelog.output_step WHERE view = %s ORDER BY last"
    steps = view.connection.execute(query, (view.compiled.name,)).fetchall()
    assert [last for last, _ in steps] == [10, 20, 30, 40]
    first = "1.{}.{}".format(*steps[0])
    for last, identity in steps[:-1]:
        place = f"1.{last}.{identity}"
        for header, asked in ((place, {}), ("", {"last_event_id": place}), (place, {"last_event_id": first})):
            with api.following(view.compiled.name, after=header, **asked) as told:
                step = told.next()
                assert step is not None
                assert (step.name, step.data["number"], len(step.data["changes"])) == ("change", last + 10, 10)


def places_that_are_gone(view: Published) -> dict[str, str]:
    query = "SELECT last, id::text FROM truelog.output_step WHERE view = %s ORDER BY last"
    (first, of_first), (last, identity) = view.connection.execute(query, (view.compiled.name,)).fetchall()
    return {
        "trimmed": f"1.{first}.{of_first}",
        "in the middle of a step": f"1.{last - 1}.{identity}",
        "of the future": f"1.{last + 9}.{identity}",
        "of a restored database": f"1.{last}.{of_first}",
        "of another version": f"2.{last}.{identity}",
        "no place": "yesterday",
    }


def test_a_place_that_is_gone_begins_again_with_the_rows(api: Served, view: Published) -> None:
    view.change({"p1": "1"})
    view.change({"p1": "2", "p2": "2"})
    gone = places_that_are_gone(view)
    older(view.connection, timedelta(hours=2))
    ViewFeed(view.settings, view.connection, view.compiled.name, 1).trim(view.number())
    for why, place in gone.items():
        with api.following(view.compiled.name, after=place) as told:
            first, second = told.next(), told.next()
            assert first is not None
            assert second is not None
            assert (first.name, first.id, second.name) == ("resync", "resync", "rows"), why
            assert told.rows == view.rows()


def test_another_history_ends_a_subscriber_with_resync(api: Served, view: Published) -> None:
    def restored() -> None:
        another_history(view.connection)

    def again() -> None:
        begin_again(view)

    def emptied() -> None:
        view.change_unpublished({}, "p1", "p2")
        begin_again(view)

    for happens in (restored, again, emptied):
        view.change({"p1": "1", "p2": "1"})
        view.change({"p1": "2"})
        with api.following(view.compiled.name) as told:
            told.next()
            happens()
            end = told.next()
            assert end is not None
            assert (end.name, told.place, told.next()) == ("resync", "resync", None), happens
        with api.following(view.compiled.name) as told:
            told.next()
            assert told.rows == view.rows()


def test_a_browser_that_must_forget_its_rows_gets_all_of_them(api: Served, view: Published) -> None:
    """Its address still has the place from which it went on at first. Its header is newer."""
    view.change({"p1": "1"})
    name = view.compiled.name
    with api.following(name) as told:
        told.next()
        address = {"last_event_id": told.place}
    view.change({"p2": "2"})
    with api.following(name, **address) as told:
        told.next()
        api.subscriptions._tails[name, 1].resync("a test")
        end = told.next()
        assert end is not None
        assert (end.name, told.next()) == ("resync", None)
    with api.following(name, after=told.place, **address) as again:
        first = again.next()
        assert first is not None
        assert first.name == "resync"
        again.next()
        assert again.rows == view.rows()


def test_a_removed_view_ends_its_subscribers_and_says_so(api: Served, view: Published) -> None:
    with api.following(view.compiled.name) as told:
        told.next()
        with without_its_file(view.connection, view.compiled.name):
            end = told.next()
    assert end is not None
    assert (end.name, "another version of the view or none" in end.data["reason"]) == ("resync", True)


def test_an_empty_output_has_a_place_too(api: Served, view: Published) -> None:
    with api.following(view.compiled.name) as told:
        first = told.next()
        assert first is not None
        assert (first.data["rows"], first.data["number"]) == ([], 0)
        view.change({"p1": "1"})
        told.read_to(1)
        place = first.id
    with api.following(view.compiled.name, after=place) as told:
        assert told.next() is not None
        assert told.rows == view.rows()


def test_a_subscriber_gets_only_its_rows(api: Served, view: Published) -> None:
    """Others do not wake it, and a heartbeat moves its place, so that it need not begin again later."""
    view.change({"p1": "1", "p2": "1"})
    with (
        api.following(view.compiled.name, where="product=p1") as told,
        api.following(view.compiled.name, key="p2") as other,
    ):
        told.next()
        other.next()
        assert list(told.rows) == ['{"product":"p1"}']
        view.change({"p2": "2", "p3": "3"})
        other.next()
        view.change({"p1": "2"})
        change = told.next()
        assert change is not None
        assert (change.data["number"], len(change.data["changes"])) == (5, 1)
        assert other.numbers == [2, 4]


def test_a_heartbeat_moves_the_place(api: Served, view: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.2)
    view.change({"p1": "1"})
    with api.following(view.compiled.name, where="product=p1") as told:
        told.next()
        view.change({"p2": "2"})
        lines = told._lines
        assert lines is not None
        beats = (line for line in lines if line.startswith("id: 1.2."))
        place = next(beats).removeprefix("id: ")
    with api.following(view.compiled.name, after=place, where="product=p1") as told:
        view.change({"p1": "3"})
        change = told.next()
        assert change is not None
        assert (change.name, change.data["number"]) == ("change", 3)


def test_one_small_query_serves_a_hundred_idle_subscribers(api: Served, view: Published) -> None:
    """A subscriber never reads the database after its first rows."""
    view.change({"p1": "1"})
    asked = list[str]()
    reader = api.subscriptions.outbox
    execute = reader._all

    async def counted(statement: object, values: object) -> object:
        asked.append(str(statement)[:40])
        return await execute(statement, values)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        streams = []
        for number in range(100):
            entered = api.following(view.compiled.name, where=f"product=p{number}")
            streams.append((entered, entered.__enter__()))
            streams[-1][1].next()
        patch.setattr(reader, "_all", counted)
        until(lambda: require_looks(asked, 5), 20, "looks")
        assert set(asked) == {str(api_outbox._HEADS)[:40]}
        view.change({"p7": "1", "p8": "1"})
        for number in (7, 8):
            streams[number][1].next()
            assert list(streams[number][1].rows) == [f'{{"product":"p{number}"}}']
        assert len([each for each in asked if each != str(api_outbox._HEADS)[:40]]) == 1
        for entered, _ in streams:
            entered.__exit__(None, None, None)


def require_looks(asked: list[str], number: int) -> None:
    if len(asked) < number:
        raise ServiceDown(f"{len(asked)} looks")


def test_a_slow_reader_is_ended_with_resync(postgresql: Settings, view: Published) -> None:
    """It is never skipped, and a frozen one loses its connection."""
    with pytest.MonkeyPatch.context() as patch, serving(postgresql, take_seconds=1.0) as api:
        patch.setattr(subscriber, "MOST_BYTES", 100_000)
        name = view.compiled.name
        with api.following(name), api.following(name) as quick:
            quick.next()
            require_subscribers(api, 2)
            chosen = Random(1)
            for _ in range(400):
                view.change({f"{'x' * 400}{n}": str(chosen.random())[:14] for n in range(60)})
                quick.read_to(view.number())
                if api.subscribers < 2:
                    break
            until(lambda: require_subscribers(api, 1), 30, "the end of the frozen reader")
            assert quick.rows == view.rows()


def large_rows(chosen: Random) -> dict[str, str]:
    """Ten rows with about a thousand bytes each, with their keys."""
    return {f"{'x' * 400}{n}": str(chosen.random())[:14] for n in range(10)}


def test_the_tail_is_bounded_in_bytes(api: Served, view: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a client comes back whose steps the tail has forgotten. It gets each of them from the outbox."""
    monkeypatch.setattr(tail, "PORTION_BYTES", 30_000)
    name, chosen = view.compiled.name, Random(1)
    with api.following(name) as told:
        told.next()
        place, rows = told.place, dict(told.rows)
        for _ in range(10):
            view.change(large_rows(chosen))
            told.read_to(view.number())
        kept = api.subscriptions._tails[name, 1]
        assert 0 < sum(each.size for each in kept._steps) <= 30_000
        with api.following(name, after=place) as later:
            later.rows = rows
            later.read_to(view.number())
            assert later.numbers == [*range(10, 101, 10)]
            assert later.rows == view.rows()
            assert sum(each.size for each in kept._steps) <= 30_000


def test_a_client_behind_the_tail_begins_again_at_once(
    api: Served, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outbox has the steps, and the tail would not keep them."""
    for module in (subscriptions, tail):
        monkeypatch.setattr(module, "PORTION", 30)
    view.change(dict.fromkeys(map(str, range(10)), "1"))
    name, first = view.compiled.name, ""
    with api.following(name) as told:
        told.next()
        first = told.place
        for amount in "234":
            view.change(dict.fromkeys(map(str, range(10)), amount))
        told.read_to(view.number())
        for behind, names in ((30, ["change"] * 3), (40, ["resync", "rows"])):
            with api.following(name, after=first) as later:
                found = [later.next() for _ in names]
                assert [each.name for each in found if each] == names, behind
            view.change(dict.fromkeys(map(str, range(10)), str(behind)))
            told.read_to(view.number())


def test_a_step_of_too_many_bytes_begins_again(api: Served, view: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_outbox, "PORTION_BYTES", 3_000)
    with api.following(view.compiled.name) as told:
        told.next()
        view.change(large_rows(Random(1)))
        end = told.next()
        assert end is not None
        assert (end.name, told.next()) == ("resync", None)


def test_a_client_with_more_changes_than_rows_begins_again(postgresql: Settings, view: Published) -> None:
    """What it has missed is larger than a beginning may be, so it gets the rows."""
    with serving(postgresql, api_subscriber_bytes=15_000) as api:
        with api.following(view.compiled.name) as told:
            told.next()
        for each in range(20):
            view.change({"x" * 400: str(each)})
        with api.following(view.compiled.name, after=told.place) as again:
            first, second = again.next(), again.next()
            assert first is not None
            assert second is not None
            assert (first.name, second.name) == ("resync", "rows")
            assert again.rows == view.rows()


def test_a_view_that_does_not_publish_says_so(api: Served, view: Published) -> None:
    deploy_and_settle(view.connection, declared(f"{view.compiled.name}x", publish=False))
    refused = api.refused(f"{view.compiled.name}x")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:truelog:problem:not-published")
    assert "publish=True" in refused.json()["detail"]
    assert api.refused("nothing").status_code == 404


def test_a_condition_names_a_column_of_the_key(api: Served, view: Published) -> None:
    for asked in ({"where": "amount=1"}, {"where": "product<>p1"}, {"key": ["a", "b"]}, {"x": "1"}, {"where": "x"}):
        assert api.refused(view.compiled.name, **asked).status_code == 422
