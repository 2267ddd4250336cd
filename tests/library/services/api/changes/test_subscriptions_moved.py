"""Subscribers come while readers move to a version with another column, and back."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.library.services.api.streaming import Served, Stream
from tests.library.versions.two_versions import FIRST, TwoVersions, deploy_two
from truelog import Sum
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.versions.cut_over import back, cut_over

COLUMNS = {1: "views", 2: "waited"}


@pytest.fixture
def versions(postgresql: Settings, connection: Connection) -> Iterator[TwoVersions]:
    first = replace(FIRST, present={}, publish=True)
    made = deploy_two(postgresql, connection, replace(first, measures={"waited": Sum()}, version=2), first)
    made.make_ready()
    yield made
    made.forget()


def require_version(told: Stream, version: int) -> None:
    assert told.answer.status_code == 200, told.answer.read()
    rows = told.next()
    assert rows is not None
    assert (rows.name, rows.data["version"]) == ("rows", version)
    assert list(told.rows.values()) == [f'{{"url":"a","{COLUMNS[version]}":{version}}}']


def test_a_subscriber_that_comes_after_a_move_follows_the_other_version(api: Served, versions: TwoVersions) -> None:
    """Whatever the service knew of the view a moment ago. A present subscriber must begin again."""
    for move, version in ((None, 1), (cut_over, 2), (back, 1)):
        with api.following(versions.name) as former:
            former.next()
            if move is not None:
                move(versions.settings, versions.name, doer="test")
            with api.following(versions.name) as told:
                require_version(told, version)
            if move is not None:
                end = former.next()
                assert end is not None
                assert (end.name, former.next()) == ("resync", None)
