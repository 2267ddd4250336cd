"""`make affected` finds the tests that a change reaches, and every file of the platform reaches a test."""

from pathlib import Path

import pytest

from tests import affected
from tests.affected import LOADS, changes, select
from tests.house.tree import PROJECT, files, git, plant
from tests.import_graph import ImportGraph, is_one_of

# Rules find their tests by the file's name: views, and event types.
BY_RULE = ("spark_apps/views/", "include/events/")
# Files that no test of `make test` runs: packages without code, the marker of typed packages, and what runs by itself.
BESIDE = (
    "include/truelog/py.typed",
    "include/runtime/__main__.py",
    "include/demo/__main__.py",
    "include/demo/capture.py",
    "include/demo/shop.py",
)


def unreached(root: Path) -> list[str]:
    """The platform's files that no test reaches."""
    graph = ImportGraph(root)
    for node, needed in LOADS.items():
        for each in needed:
            graph.link(node, each)
    seen, waiting = set(graph.tests), list(graph.tests)
    while waiting:
        new = graph.edges[waiting.pop()] - seen
        seen |= new
        waiting += new
    platform = files(root, "include/*", "spark_apps/*", "dags/*", "plugins/*")
    names = {str(path.relative_to(root)) for path in platform if path.name != "__init__.py"}
    return sorted(name for name in names - seen if not name.startswith((*BY_RULE, *BESIDE)))


def test_every_file_of_the_platform_is_reached_by_a_test() -> None:
    assert unreached(PROJECT) == []


def test_every_rule_names_files_that_exist() -> None:
    existing = [str(path.relative_to(PROJECT)) for path in files(PROJECT)]
    named = [node.partition("::")[0] for node in LOADS] + [each for needed in LOADS.values() for each in needed]
    assert [each for each in named if not any(is_one_of(file, each) for file in existing)] == []


FIXTURES = """
import pytest
from truelog.log import broker
from truelog.storage.migration import migrate
pytest_plugins = ("tests.more",)
@pytest.fixture
def kafka(): return broker.start()
@pytest.fixture
def database(): return migrate()
@pytest.fixture
def both(kafka, database): pass
"""
TREE = {
    "include/truelog/__init__.py": "_HOMES = {'View': 'truelog.views.view'}\n",
    "include/truelog/views/view.py": "class View: pass\n",
    "include/truelog/log/broker.py": "def start():\n    from truelog.log import record\n",
    "include/truelog/log/record.py": "",
    "include/truelog/storage/migration.py": "SCHEMA = 'schema.sql'\n",
    "include/truelog/storage/sql/schema.sql": "",
    "include/truelog/streaming/app.py": "",
    "include/events/page_view.py": "",
    "include/runtime/lag.py": "COMMAND = ('-m', 'truelog.lag.service')\n",
    "include/truelog/lag/service.py": "",
    "spark_apps/stream.py": "from truelog.streaming.app import main\n",
    "spark_apps/views/cart.py": "READS = ('page_view',)\n",
    "spark_apps/views/post.py": "READS = ('post',)\n",
    "include/truelog/cli/main.py": "from truelog.cli.commands import sending, keys\nGROUPS = {'key': keys.app}\n"
    "COMMANDS = (sending.send,)\n",
    "include/truelog/cli/commands/sending.py": "",
    "include/truelog/cli/commands/keys.py": "",
    "tests/command.py": "from truelog.cli import main\n",
    "tests/test_send.py": "from tests.command import run\nrun('send')\n",
    "tests/test_key.py": "from tests.command import run\nrun('key list')\n",
    "dags/streams.py": "import trigger\n",
    "plugins/trigger.py": "",
    "tests/conftest.py": FIXTURES,
    "tests/more.py": "import pytest, other\n@pytest.fixture(autouse=True)\ndef always(): return other.x\n",
    "tests/other.py": "",
    "tests/test_kafka.py": "def test_a(kafka): pass\n",
    "tests/test_both.py": "def test_a(both): pass\n",
    "tests/test_nothing.py": "from tests.helper import x\nfrom truelog import View\n",
    "tests/helper.py": "import streams\n",
    "tests/scenes/conftest.py": "def scene(): return start('stream.py')\ndef other(): pass\n",
    "tests/scenes/test_scene.py": "from tests.scenes.conftest import scene\n",
    "tests/scenes/test_other.py": "from tests.scenes.conftest import other\nup(['lag'])\n",
    "tests/views/test_cart.py": "",
    "tests/views/test_post.py": "",
    "tests/library/schema/test_event.py": "",
    "pyproject.toml": "",
}
EVERY = {name.rpartition("/")[2] for name in TREE if "/test_" in name}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param("include/truelog/log/broker.py", {"test_kafka.py", "test_both.py"}, id="through a fixture"),
        pytest.param("include/truelog/log/record.py", {"test_kafka.py", "test_both.py"}, id="an import in a function"),
        pytest.param("include/truelog/storage/migration.py", {"test_both.py"}, id="only the fixtures that use it"),
        pytest.param("include/truelog/storage/sql/schema.sql", {"test_both.py"}, id="a file that a module loads"),
        pytest.param("include/truelog/views/view.py", {"test_nothing.py"}, id="a public name"),
        pytest.param("include/truelog/streaming/app.py", {"test_scene.py"}, id="an application's process"),
        pytest.param("include/truelog/lag/service.py", {"test_other.py"}, id="a service's process"),
        pytest.param("include/truelog/cli/main.py", {"test_send.py", "test_key.py"}, id="the command line"),
        pytest.param("include/truelog/cli/commands/sending.py", {"test_send.py"}, id="a command"),
        pytest.param("include/truelog/cli/commands/keys.py", {"test_key.py"}, id="a group of commands"),
        pytest.param("plugins/trigger.py", {"test_nothing.py"}, id="through a helper and a DAG file"),
        pytest.param("tests/scenes/conftest.py", {"test_scene.py", "test_other.py"}, id="a conftest file"),
        pytest.param("tests/conftest.py", {"test_kafka.py", "test_both.py"}, id="users of its fixtures"),
        pytest.param("tests/more.py", EVERY, id="a plugin with a fixture for all"),
        pytest.param("tests/test_kafka.py", {"test_kafka.py"}, id="a test"),
        pytest.param("tests/new.py", set(), id="a new file"),
        pytest.param("spark_apps/views/cart.py", {"test_cart.py"}, id="a view"),
        pytest.param("include/events/page_view.py", {"test_cart.py", "test_event.py"}, id="an event type"),
        pytest.param("pyproject.toml", EVERY, id="a dependency"),
        pytest.param("docs/a.md", set(), id="a document"),
    ],
)
def test_a_change_selects(tmp_path: Path, changed: str, expected: set[str]) -> None:
    selection = select(plant(tmp_path, TREE), {changed})
    assert {file.rpartition("/")[2] for file in selection.chains} == expected
    assert all(chain[-1] == changed and chain[0] == file for file, chain in selection.chains.items())


def test_a_removed_module_selects_the_tests_that_still_import_it(tmp_path: Path) -> None:
    plant(tmp_path, TREE)
    (tmp_path / "include/truelog/log/record.py").unlink()
    chain = select(tmp_path, {"include/truelog/log/record.py"}).chains["tests/test_kafka.py"]
    assert chain[1:] == ["tests/conftest.py::kafka", "include/truelog/log/broker.py", "include/truelog/log/record.py"]


def test_a_view_runs_its_laws_and_an_event_type_the_laws_of_its_views(tmp_path: Path) -> None:
    plant(tmp_path, TREE)
    assert select(tmp_path, {"spark_apps/views/post.py"}).views == ("post",)
    assert select(tmp_path, {"include/events/page_view.py"}).views == ("cart",)
    house, laws = select(tmp_path, {"spark_apps/views/post.py", "include/events/page_view.py"}).commands
    assert house[:4] == ["-m", "not nightly", "tests/house/", "tests/library/schema/test_event.py"]
    assert "tests/laws/test_stream_equals_batch.py" in laws
    assert "-m" not in laws, "the laws of a changed view run with their nightly cases"
    assert laws[-2:] == ["-k", "cart or post"]


def test_changes_are_edits_commits_and_new_files_since_the_upstream(tmp_path: Path) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    upstream = plant(
        tmp_path / "upstream", {"kept.py": "", "edited.py": "", "removed.py": "", ".gitignore": "build/\n"}
    )
    git(upstream, "add", ".")
    git(upstream, *identity, "commit", "-m", "first")
    git(tmp_path, "clone", str(upstream), "clone")
    clone = tmp_path / "clone"
    (clone / "committed.py").write_text("")
    git(clone, "add", ".")
    git(clone, *identity, "commit", "-m", "second")
    plant(clone, {"edited.py": "1\n", "new.py": "", "build/ignored.py": ""})
    (clone / "removed.py").unlink()
    assert changes(clone, None)[1] == {"committed.py", "edited.py", "new.py", "removed.py"}
    assert changes(clone, "HEAD")[1] == {"edited.py", "new.py", "removed.py"}


def test_the_list_names_the_files_and_the_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(affected, "PROJECT", plant(tmp_path, TREE))
    monkeypatch.setattr(affected, "changes", lambda root, base: ("0123456789abcdef", {"plugins/trigger.py"}))
    assert affected.main(["--list", "--why"]) == 0
    assert capsys.readouterr().out == (
        "1 files differ from 0123456789ab; they reach 1 test files\n"
        "  tests/test_nothing.py: tests/helper.py < dags/streams.py < plugins/trigger.py\n"
    )
