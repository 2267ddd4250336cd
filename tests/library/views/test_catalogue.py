"""The catalogue, and commands that read all of it: they report a broken file but still show the other views."""

from pathlib import Path

import pytest

from tests.command import answer, truelog
from tests.library import stray_files
from truelog.reports.view import view_entries
from truelog.schema import declaration_files
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings
from truelog.views import catalogue

GOOD = '''"""A view without a table."""
from truelog import Sum, View
VIEW = View(reads=("page_view",), transform=lambda page_view: page_view, key=("a",), measures={"n": Sum()})
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"broken": "import no_such_module", "empty": "", "good": GOOD}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def test_a_file_that_cannot_be_loaded_raises_the_reason(folder: Path) -> None:
    with pytest.raises(BadDeclaration, match=r"broken\.py cannot be loaded: ModuleNotFoundError: .*no_such_module"):
        catalogue.load_view("broken", folder)
    with pytest.raises(BadDeclaration, match=r"empty\.py declares no VIEW"):
        catalogue.load_view("empty", folder)


def test_a_view_reads_no_output_of_a_view(folder: Path) -> None:
    (folder / "good.py").write_text(GOOD.replace('"page_view"', '"view.cart.v1"'))
    with pytest.raises(BadDeclaration, match=r"view\.cart\.v1 is an output of a view\. Read the event types"):
        catalogue.load_view("good", folder)


def test_commands_on_the_whole_catalogue_show_broken_views_and_the_others(postgresql: Settings, folder: Path) -> None:
    """The exit code is 3 if a command needs the content of a broken file. `positions` needs only the file's name."""
    environment = {"TRUELOG_VIEWS_FOLDER": str(folder)}
    answered = answer("views", exit_code=3, **environment)
    assert [entry["view"] for entry in answered["views"]] == ["good"]
    assert answered["refused"].keys() == {"broken", "empty"}
    assert "No module named 'no_such_module'" in answered["refused"]["broken"]

    shown = truelog("views", **environment)
    assert shown.returncode == 3
    assert "good  version 1" in shown.stdout
    assert "broken  broken.py cannot be loaded" in shown.stdout

    query = truelog("query", "broken", "--relation", "any", **environment)
    assert query.returncode == 3
    assert "BadDeclaration: broken.py cannot be loaded" in query.stderr
    assert set(answer("positions", exit_code=0, **environment)) == {"broken", "empty", "good"}
    assert {row["reader"] for row in answer("lag", exit_code=3, **environment)["lag"]} >= {"broken", "empty", "good"}


def test_commands_on_the_whole_catalogue_show_stray_files_and_the_other_views(
    postgresql: Settings, folder: Path
) -> None:
    stray_files.leave(folder)
    answered = answer("views", exit_code=3, TRUELOG_VIEWS_FOLDER=str(folder))
    assert [entry["view"] for entry in answered["views"]] == ["good"]
    assert answered["refused"].keys() == {"empty", *stray_files.REFUSED, *declaration_files.misnamed(folder)}
    entries = {each.view: each for each in view_entries(postgresql.model_copy(update={"views_folder": folder}))}
    assert entries.keys() == {"empty", "good", *stray_files.REFUSED}
    assert all(entries[name].broken for name in stray_files.REFUSED)
