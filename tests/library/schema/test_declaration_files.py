"""What people leave in a folder of declarations: it is ignored, or refused alone."""

from pathlib import Path

import pytest

from tests.library import stray_files
from truelog.control import application
from truelog.schema import declaration_files
from truelog.schema.loading import events
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings
from truelog.views import catalogue

EVENT = """
from truelog import Event, Topic
TOPIC = Topic(key=None, subject=(), partitions=1, retention="1 day")
class Good(Event):
    text: str
"""
VIEW = """
from truelog import Sum, View
VIEW = View(reads=("page_view",), transform=lambda page_view: page_view, key=("a",), measures={"n": Sum()})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    stray_files.leave(tmp_path)
    return tmp_path


def test_hidden_and_misnamed_files_declare_nothing(folder: Path) -> None:
    (folder / "good.py").touch()
    names = [*sorted(stray_files.REFUSED), "good"]
    assert declaration_files.declared_names(folder) == sorted(names)
    assert catalogue.view_names(folder) == events.event_names(folder) == sorted(names)
    misnamed = declaration_files.misnamed(folder)
    assert len(misnamed) == len(stray_files.MISNAMED)
    assert misnamed["search-2"] == "search-2.py is not read: use a-z, 0-9 and _ in its file name."
    assert all((name + reason).encode() for name, reason in misnamed.items()), "PostgreSQL can store each reason"


def test_a_stray_file_stops_no_event_type_but_itself(folder: Path) -> None:
    (folder / "good.py").write_text(EVENT)
    types, broken = events.load_proposals(folder)
    assert [*types] == ["good"]
    assert broken.keys() == {*stray_files.REFUSED} | declaration_files.misnamed(folder).keys()
    assert "a link to a file that does not exist" in broken["dangling"]
    assert "SyntaxError" in broken["broken"]


def test_a_stray_file_stops_no_view_but_itself(folder: Path) -> None:
    (folder / "good.py").write_text(VIEW)
    assert catalogue.load_view("good", folder)
    for name in stray_files.REFUSED:
        with pytest.raises(BadDeclaration, match=rf"{name}\.py cannot be "):
            catalogue.load_view(name, folder)


def test_a_stray_file_hides_no_change_of_another_file(folder: Path, settings: Settings) -> None:
    given = settings.model_copy(update={"views_folder": folder})
    (folder / "good.py").write_text(VIEW)
    before = application.source_digest(given)
    (folder / ".another.py").write_text("(")
    assert application.source_digest(given) == before
    (folder / "good.py").write_text(VIEW + "# changed")
    changed = application.source_digest(given)
    (folder / "dangling.py").unlink()
    (folder / "dangling.py").touch()
    assert len({before, changed, application.source_digest(given)}) == 3
