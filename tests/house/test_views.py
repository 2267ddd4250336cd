"""Each view is one file with one test file, and names its owner.

It runs no Python on rows, because such code is slow and fails late.
"""

import ast
from pathlib import Path

from tests.house.tree import PROJECT, files, modules, plant

PYTHON_IN_ROWS = {
    *("udf", "udtf", "pandas_udf", "arrow_udf", "arrow_udtf", "rdd"),
    *("mapInPandas", "mapInArrow", "applyInPandas", "applyInArrow", "cogroup", "transformWithState"),
    *("collect", "toPandas", "toArrow", "foreach", "foreachPartition"),
}


def without_a_test(root: Path) -> list[str]:
    """Views without a test, and tests without a view."""
    views = {path.stem for path in files(root, "spark_apps/views/*.py")} - {"__init__"}
    tests = {path.stem.removeprefix("test_") for path in files(root, "tests/views/test_*.py")}
    missing = [f"spark_apps/views/{name}.py has no tests/views/test_{name}.py" for name in sorted(views - tests)]
    return missing + [f"tests/views/test_{name}.py tests a view that does not exist" for name in sorted(tests - views)]


def without_an_owner(root: Path) -> list[str]:
    """Views that do not say whom to ask about them."""
    return [
        f"{name} names no owner; the page of the view shows whom to ask"
        for name, tree in modules(root, "spark_apps/views/*.py")
        if not any(_is_owner(node) for node in ast.walk(tree)) and not name.endswith("__init__.py")
    ]


def _is_owner(node: ast.AST) -> bool:
    if not isinstance(node, ast.keyword) or node.arg != "owner":
        return False
    return isinstance(node.value, ast.Constant) and bool(node.value.value)


def with_python_in_rows(root: Path) -> list[str]:
    return [
        f"{name}:{node.lineno} {word} runs Python on rows; use native expressions"
        for name, tree in modules(root, "spark_apps/views/*.py")
        for node in ast.walk(tree)
        if (word := _word(node)) in PYTHON_IN_ROWS and isinstance(node, ast.expr | ast.alias)
    ]


def _word(node: ast.AST) -> str:
    """The name that a node refers to, or an empty string."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return node.name.rpartition(".")[2] if isinstance(node, ast.alias) else ""


def test_every_view_has_its_test() -> None:
    assert without_a_test(PROJECT) == []


def test_every_view_names_its_owner() -> None:
    assert without_an_owner(PROJECT) == []


def test_a_view_without_an_owner_is_found(tmp_path: Path) -> None:
    given = {"empty": "owner=''", "none": "", "right": "owner='us'"}
    plant(tmp_path, {f"spark_apps/views/{name}.py": f"VIEW = View({each})" for name, each in given.items()})
    found = [each.split()[0] for each in without_an_owner(tmp_path)]
    assert found == ["spark_apps/views/empty.py", "spark_apps/views/none.py"]


def test_no_view_runs_python_on_rows() -> None:
    assert with_python_in_rows(PROJECT) == []


def test_a_view_without_a_test_and_a_test_without_a_view_are_found(tmp_path: Path) -> None:
    names = (
        "spark_apps/views/seen.py",
        "spark_apps/views/both.py",
        "tests/views/test_both.py",
        "tests/views/test_old.py",
    )
    plant(tmp_path, dict.fromkeys(names, ""))
    assert without_a_test(tmp_path) == [
        "spark_apps/views/seen.py has no tests/views/test_seen.py",
        "tests/views/test_old.py tests a view that does not exist",
    ]


def test_planted_python_on_rows_is_found(tmp_path: Path) -> None:
    view = "\n".join(
        (
            "from pyspark.sql.functions import udf as native",
            "from pyspark.sql import functions as F",
            "host = F.pandas_udf(str, 'string')",
            "rows = frame.mapInPandas(f, 'x int')",
            "fine = F.try_parse_url('url', F.lit('HOST'))",
        )
    )
    plant(tmp_path, {"spark_apps/views/slow.py": view})
    lines = [int(problem.split(":")[1].split()[0]) for problem in with_python_in_rows(tmp_path)]
    assert lines == [1, 3, 4]
