"""`truelog searches list`, `show` and `try`: what people and scripts read of searches that a view has counted."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.beds.archived import Archived
from tests.command import answer, truelog
from tests.library.click_searches import HITS, retire, set_search
from truelog.batch import batch_context
from truelog.cli.rules import searching

VIEW = "from tests.library.click_searches import HITS\nVIEW = HITS\n"
SECOND = 3 * 3600


def a_retired_search_with_a_hit(ground: Archived) -> None:
    ground.tick(SECOND - 10)
    set_search(ground, "outage", "down")
    ground.click(0, [("Kafka is down", "1", SECOND), ("up", "5", SECOND + 1)])
    retire(ground, "outage")
    ground.click(0, [("down again", "1", SECOND + 2)])
    ground.tick(SECOND + 100)
    ground.stream()


pytestmark = pytest.mark.ground(view=HITS, filled=a_retired_search_with_a_hit)


@pytest.fixture
def folder(ground: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder of the ground's view. The commands read this view, in the tests' Spark session."""

    @contextmanager
    def opened(*_: Any, **__: Any) -> Iterator[tuple[Any, Any]]:
        yield ground.lab.context, ground.compiled

    monkeypatch.setattr(searching, "HITS", ground.compiled.name)
    monkeypatch.setattr(batch_context, "open_view", opened)
    (tmp_path / f"{ground.compiled.name}.py").write_text(VIEW)
    return str(tmp_path)


def test_searches_with_their_hits_and_what_one_would_have_found(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", folder)
    [search] = answer("searches", "list")["searches"]
    assert (search["search"], search["version"], search["in_force"], search["hits"]) == ("outage", 1, False, 1)
    assert (search["event_type"], search["query"]) == ("click", "down")
    assert "outage" in truelog("searches", "list").stdout

    [hit] = answer("searches", "show", "outage")["hits"]
    assert (hit["document"], hit["snippet"]) == ("click:0:0", "Kafka is down")
    assert "Kafka is down" in truelog("searches", "show", "outage").stdout
    assert truelog("searches", "show", "other").returncode == 2

    asked = ("searches", "try", "down NOT up", "--on", "click", "--from", "2026-03-01T02:00:00Z")
    found = answer(*asked)
    assert (found["hits"], found["events"], found["days"]) == (2, 3, {"2026-03-01": 2})
    assert [each["document"] for each in found["samples"]] == ["click:0:2", "click:0:0"]
    assert "2 hits among 3 events" in truelog(*asked).stdout


def test_a_query_is_tried_on_a_text(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", folder)
    assert answer("searches", "try", "kaf*", "--on", "click", "--text", "KAFKA!") == {"fits": True}
    assert answer("searches", "try", "kaf*", "--on", "click", "--text", "up", exit_code=1) == {"fits": False}
    assert "the text fits" in truelog("searches", "try", "up", "--on", "click", "--text", "up").stdout
    ran = truelog("searches", "try", "NOT up", "--on", "click", "--text", "up")
    assert (ran.returncode, "must have a word" in ran.stderr) == (2, True)
