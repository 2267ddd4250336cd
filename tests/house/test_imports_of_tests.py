"""Only the tests of the benchmarks import the benchmarks, and nothing imports from a test file.

A name that two test files share belongs to a helper module, and a fixture that they share to a conftest file.
"""

import ast
from pathlib import Path

from tests.house.tree import PROJECT, imports, modules, plant

MAY_IMPORT_BENCH = "tests/bench/"


def imports_of_bench(root: Path) -> list[str]:
    return [
        f"{name}:{line} imports {imported}; only {MAY_IMPORT_BENCH} may"
        for name, tree in modules(root, "tests/*.py", "include/*.py", "dags/*.py", "plugins/*.py", "spark_apps/*.py")
        for line, imported in imports(tree)
        if imported.partition(".")[0] == "bench" and not name.startswith(MAY_IMPORT_BENCH)
    ]


def imports_of_test_files(root: Path) -> list[str]:
    return [
        f"{name}:{line} imports {imported}; move what is shared to a helper module or a conftest file"
        for name, tree in modules(root)
        for line, imported in imports(tree)
        if any(part.startswith("test_") for part in imported.split(".")) and imported.partition(".")[0] in ("", "tests")
    ]


def imported_fixtures(root: Path) -> list[str]:
    """Imports of fixtures by other files than conftest files. A test file gets the fixtures of the conftest files."""
    fixtures = {
        f"{name.removesuffix('.py').replace('/', '.')}.{node.name}"
        for name, tree in modules(root, "tests/*.py")
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any("pytest.fixture" in ast.unparse(e) for e in node.decorator_list)
    }
    return [
        f"{name}:{line} imports the fixture {imported}; define it in a conftest file"
        for name, tree in modules(root)
        for line, imported in imports(tree)
        if imported in fixtures and not name.endswith("/conftest.py")
    ]


def test_only_the_tests_of_the_benchmarks_import_them() -> None:
    assert imports_of_bench(PROJECT) == []


def test_nothing_imports_from_a_test_file() -> None:
    assert imports_of_test_files(PROJECT) == []


def test_no_fixture_is_imported() -> None:
    assert imported_fixtures(PROJECT) == []


def test_planted_imports_of_the_benchmarks_are_found(tmp_path: Path) -> None:
    planted = {
        "bench/report.py": "from bench.row import Row\nfrom tests.deadline import until\n",
        "tests/bench/test_bench.py": "from bench import report\n",
        "tests/scenes/marked.py": "def f():\n    from bench.row import Row\n",
        "tests/laws/test_a.py": "from tests.laws.bench import Bench\n",
    }
    plant(tmp_path, planted)
    assert imports_of_bench(tmp_path) == ["tests/scenes/marked.py:2 imports bench.row.Row; only tests/bench/ may"]


def test_planted_imports_from_test_files_are_found(tmp_path: Path) -> None:
    planted = {
        "tests/laws/test_a.py": "from tests.beds.lab import Lab\nfrom tests.laws.test_b import rows\n",
        "tests/laws/test_b.py": "import tests.laws.test_a as a\nfrom tests.laws import events, test_a\n",
        "tests/laws/test_c.py": "from .test_b import rows\nfrom test_library import x\nimport unittest\n",
        "bench/row.py": "from tests.bench.test_bench import ROW\n",
    }
    plant(tmp_path, planted)
    assert [problem.partition(";")[0] for problem in imports_of_test_files(tmp_path)] == [
        "bench/row.py:1 imports tests.bench.test_bench.ROW",
        "tests/laws/test_a.py:2 imports tests.laws.test_b.rows",
        "tests/laws/test_b.py:1 imports tests.laws.test_a",
        "tests/laws/test_b.py:2 imports tests.laws.test_a",
        "tests/laws/test_c.py:1 imports .test_b.rows",
    ]


def test_planted_imports_of_fixtures_are_found(tmp_path: Path) -> None:
    fixtures = (
        "import pytest\n@pytest.fixture\ndef a(): ...\n@pytest.fixture(scope='module')\ndef b(): ...\ndef c(): ...\n"
    )
    planted = {
        "tests/laws/beds.py": fixtures,
        "tests/laws/conftest.py": "from tests.laws.beds import a, b\n",
        "tests/laws/test_a.py": "from tests.laws.beds import a, b, c\n",
    }
    plant(tmp_path, planted)
    assert [problem.partition(";")[0] for problem in imported_fixtures(tmp_path)] == [
        "tests/laws/test_a.py:1 imports the fixture tests.laws.beds.a",
        "tests/laws/test_a.py:1 imports the fixture tests.laws.beds.b",
    ]
