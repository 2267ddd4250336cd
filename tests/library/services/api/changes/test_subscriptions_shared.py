"""Subscribers follow the version that their key gets, or the version that they have asked for."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest
from psycopg import sql

from tests.library.services.api.streaming import Served, Stream, serving
from tests.library.versions.two_versions import FIRST, TwoVersions, deploy_two
from truelog.client.client import Client
from truelog.kernel import merge
from truelog.serving.reader_slot import reader_slot
from truelog.storage.api_key import Role, add_key
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables.output import outbox
from truelog.versions.cut_over import cut_over
from truelog.versions.share import share

KEYS = [f"follower-{number}" for number in range(12)]


@dataclass
class Followed:
    """A published view with two versions, and an API with many keys."""

    api: Served
    versions: TwoVersions
    keys: dict[str, str]

    @property
    def ordered(self) -> list[str]:
        """The keys, the first reader of a growing share first."""
        name = self.versions.name
        return [self.keys[each] for each in sorted(self.keys, key=lambda key: reader_slot(name, key))]

    @property
    def half(self) -> int:
        """A share that the first reader is in, and the last one is not."""
        slots = [reader_slot(self.versions.name, each) for each in self.keys]
        return (min(slots) + max(slots)) // 2 + 1

    def give(self, percent: int) -> None:
        share(self.versions.settings, self.versions.name, 2, percent, doer="test")

    def change(self, url: str, views: int) -> None:
        """Add a row to both versions, as their merges would."""
        connection = self.versions.connection
        for compiled in (self.versions.first, self.versions.second):
            with connection.transaction():
                merge.lock(connection, compiled)
                row = sql.SQL("INSERT INTO {} VALUES (%s, %s)").format(sql.Identifier("state", compiled.own.name))
                connection.execute(row, (url, views + compiled.view.version))
                outbox.record_changes(connection, compiled)


@pytest.fixture(scope="module")
def keys(connection: Connection) -> dict[str, str]:
    return {name: add_key(connection, name, Role.READER, "test") for name in KEYS}


@pytest.fixture(scope="module")
def api(postgresql: Settings, keys: dict[str, str]) -> Iterator[Served]:
    with serving(postgresql) as served:
        yield served


@pytest.fixture
def followed(postgresql: Settings, connection: Connection, api: Served, keys: dict[str, str]) -> Iterator[Followed]:
    first = replace(FIRST, present={}, publish=True)
    made = deploy_two(postgresql, connection, replace(first, version=2), first)
    made.make_ready()
    yield Followed(api, made, keys)
    made.forget()


def begins(told: Stream, version: int) -> None:
    rows = told.next()
    assert rows is not None
    assert (rows.name, rows.data["version"]) == ("rows", version), rows.data


def begins_again(told: Stream, version: int) -> None:
    resync = told.next()
    assert resync is not None
    assert resync.name == "resync"
    begins(told, version)


def require_change(told: Stream, url: str, views: int) -> None:
    change = told.next()
    assert change is not None
    assert (change.name, told.rows[f'{{"url":"{url}"}}']) == ("change", f'{{"url":"{url}","views":{views}}}')


def test_a_share_ends_the_streams_of_its_readers_alone(followed: Followed) -> None:
    name, first, last = followed.versions.name, followed.ordered[0], followed.ordered[-1]
    with ExitStack() as streams:
        one, other = (streams.enter_context(followed.api.following(name, credential=key)) for key in (first, last))
        for told in (one, other):
            begins(told, 1)
        followed.give(followed.half)
        end = one.next()
        assert end is not None
        assert (end.name, one.next()) == ("resync", None)
        moved = streams.enter_context(followed.api.following(name, after=one.place, credential=first))
        begins_again(moved, 2)
        followed.change("b", 10)
        require_change(moved, "b", 12)
        require_change(other, "b", 11)
        followed.give(0)
        end = moved.next()
        assert end is not None
        assert end.name == "resync"
        followed.change("c", 20)
        require_change(other, "c", 21)


def test_a_place_in_one_version_begins_again_in_the_other(followed: Followed) -> None:
    name, key = followed.versions.name, followed.ordered[0]
    with followed.api.following(name, credential=key) as told:
        begins(told, 1)
        place = told.place
    followed.give(100)
    with followed.api.following(name, after=place, credential=key) as told:
        begins_again(told, 2)


@pytest.mark.parametrize("version", [1, 2])
def test_a_subscriber_may_ask_for_a_version_and_keeps_it(followed: Followed, version: int) -> None:
    """Whatever its key gets, and also when all readers move."""
    name = followed.versions.name
    with followed.api.following(name, version=version) as told:
        begins(told, version)
        followed.give(100)
        followed.change("b", 10)
        require_change(told, "b", 10 + version)
        place = told.place
        cut_over(followed.versions.settings, name, doer="test")
        followed.change("c", 20)
        require_change(told, "c", 20 + version)
    with followed.api.following(name, after=place, version=version) as told:
        require_change(told, "c", 20 + version)


def test_a_version_that_does_not_exist_is_refused_with_the_version_that_the_key_gets(followed: Followed) -> None:
    followed.give(100)
    refused = followed.api.refused(followed.versions.name, version="7")
    assert (refused.status_code, refused.json()["type"], refused.json()["version"]) == (
        409,
        "urn:truelog:problem:other-version",
        2,
    )


def test_the_client_follows_a_version(followed: Followed) -> None:
    with Client(api=followed.api.url, reader_key=followed.ordered[-1]) as client:
        for version in (1, 2):
            updates = client.subscribe(followed.versions.name, version=version)
            assert next(updates).version == version
            updates.close()
