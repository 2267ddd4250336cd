"""Only the tests of the benchmarks import the benchmarks."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import PROJECT, modules, plant

MAY_IMPORT_BENCH = "tests/bench/"


def imports_of_bench(root: Path) -> list[str]:
    return [
        f"{name}:{line} imports {imported}; only {MAY_IMPORT_BENCH} may"
        for name, tree in modules(root, "tests/*.py", "include/*.py", "dags/*.py", "plugins/*.py", "spark_apps/*.py")
        for line, imported in _imports(tree)
        if imported.partition(".")[0] == "bench" and not name.startswith(MAY_IMPORT_BENCH)
    ]


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of each import, which is a module or a name of one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def test_only_the_tests_of_the_benchmarks_import_them() -> None:
    assert imports_of_bench(PROJECT) == []


def test_planted_imports_are_found(tmp_path: Path) -> None:
    planted = {
        "bench/report.py": "from bench.row import Row\nfrom tests.deadline import until\n",
        "tests/bench/test_bench.py": "from bench import report\n",
        "tests/scenes/marked.py": "from bench.row import Row\n",
        "tests/laws/test_a.py": "from tests.laws.bench import Bench\nfrom tests.laws.events import test_data\n",
    }
    plant(tmp_path, planted)
    assert imports_of_bench(tmp_path) == ["tests/scenes/marked.py:1 imports bench.row.Row; only tests/bench/ may"]
