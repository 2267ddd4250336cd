"""Readers of the API move with a view: the answer after a move has the rows of the other version."""

from collections.abc import Iterator

import pytest

from tests.library.services.api.asking import Asking
from tests.library.versions.two_versions import TwoVersions, deploy_two
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.versions.cut_over import back, cut_over


@pytest.fixture
def versions(postgresql: Settings, deployed: Connection) -> Iterator[TwoVersions]:
    made = deploy_two(postgresql, deployed)
    made.make_ready()
    yield made
    made.forget()


@pytest.mark.parametrize("path", ["rows", "relations/busy"])
def test_the_first_answer_after_a_move_has_the_rows_of_the_other_version(
    api: Asking, versions: TwoVersions, path: str
) -> None:
    for version in (1, 2):
        versions.store(version, [("a", 7 + version)])
    for move, version in ((None, 1), (cut_over, 2), (back, 1)):
        if move is not None:
            move(versions.settings, versions.name, doer="test")
        answer = api.get(f"/views/{versions.name}/{path}")
        assert (answer.status_code, answer.json().get("version")) == (200, version), answer.text
        [row] = answer.json()["rows"]
        assert row == {"url": "a"} | ({"views": 7 + version} if path == "rows" else {})
