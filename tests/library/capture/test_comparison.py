"""The comparison of a captured table waits for the version of its view that readers see."""

import uuid

from tests.builders.views import a_view, forget, merged_to
from truelog.capture import comparison
from truelog.log.positions import Positions
from truelog.storage.database import Connection


def test_the_positions_are_those_of_the_version_that_readers_see(connection: Connection) -> None:
    view, ids = f"towns_{uuid.uuid4().hex[:8]}", {"towns": "id", "villages": "id"}
    for version, offsets in {2: {"towns": {0: 5}}, 1: {"towns": {0: 9}, "villages": {0: 9}}}.items():
        a_view(connection, view, version)
        merged_to(connection, view, Positions(offsets, ids), version)
    assert comparison._merged(connection, view) == {("towns", 0): 5}
    forget(connection, view)
