"""The catalogue and the commands that read all of it: one broken file hides no other view, and is told of."""

from pathlib import Path

import pytest

from tests.scenes.command_line import answer, truelog
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings
from truelog.views import catalogue

GOOD = '''"""A view that nobody has made."""
from truelog import Sum, View
VIEW = View(reads=("page_view",), transform=lambda page_view: page_view, key=("a",), measures={"n": Sum()})
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"broken": "import what_there_is_not", "empty": "", "good": GOOD}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def test_a_file_that_cannot_be_loaded_says_why(folder: Path) -> None:
    with pytest.raises(BadDeclaration, match=r"broken\.py cannot be loaded: ModuleNotFoundError: .*what_there_is_not"):
        catalogue.load_view("broken", folder)
    with pytest.raises(BadDeclaration, match=r"empty\.py declares no VIEW"):
        catalogue.load_view("empty", folder)


def test_commands_on_the_whole_catalogue_show_the_broken_view_and_the_others(migrated: Settings, folder: Path) -> None:
    """Exit code 3 where something of a file has to be told; where its name is enough, it is as any other."""
    given = {"TRUELOG_VIEWS_FOLDER": str(folder)}
    told = answer("views", exit_code=3, **given)
    assert [entry["view"] for entry in told["views"]] == ["good"]
    assert told["refused"].keys() == {"broken", "empty"}
    assert "No module named 'what_there_is_not'" in told["refused"]["broken"]

    shown = truelog("views", **given)
    assert shown.returncode == 3
    assert "good  version 1" in shown.stdout
    assert "broken  broken.py cannot be loaded" in shown.stdout

    asked = truelog("query", "broken", "--relation", "any", **given)
    assert asked.returncode == 3
    assert "BadDeclaration: broken.py cannot be loaded" in asked.stderr
    assert set(answer("positions", exit_code=0, **given)) == {"broken", "empty", "good"}
    assert {row["reader"] for row in answer("lag", exit_code=3, **given)["lag"]} >= {"broken", "empty", "good"}
