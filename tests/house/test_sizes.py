"""Size limits: 400 lines per file, 40 per function and 60 per entry point."""

import ast
from pathlib import Path

from tests.house.tree import PROJECT, modules, plant, texts

FILE, FUNCTION, ENTRY_POINT = 400, 40, 60


def too_long(root: Path) -> list[str]:
    return [
        f"{name}:1 has {length} lines; split it; the limit is {limit}"
        for name, text in texts(root, "*.py", "*.js", "*.css")
        if (length := len(text.splitlines())) > (limit := _limit(name))
    ]


def _limit(name: str) -> int:
    return ENTRY_POINT if Path(name).parent == Path("spark_apps") else FILE


def functions_too_long(root: Path) -> list[str]:
    return [
        f"{name}:{node.lineno} {node.name} has {length} lines; split it; the limit is {FUNCTION}"
        for name, tree in modules(root)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION
    ]


def test_no_file_is_too_long() -> None:
    assert too_long(PROJECT) == []


def test_no_function_is_too_long() -> None:
    assert functions_too_long(PROJECT) == []


def test_planted_long_files_are_found(tmp_path: Path) -> None:
    planted = {
        "include/just.py": "x = 1\n" * FILE,
        "include/over.py": "x = 1\n" * (FILE + 1),
        "include/pages/static/over.js": "x = 1;\n" * (FILE + 1),
        "spark_apps/app.py": "x = 1\n" * (ENTRY_POINT + 1),
        "spark_apps/views/view.py": "x = 1\n" * (ENTRY_POINT + 1),
    }
    plant(tmp_path, planted)
    found = {problem.partition(":")[0] for problem in too_long(tmp_path)}
    assert found == {"include/over.py", "include/pages/static/over.js", "spark_apps/app.py"}


def test_planted_long_functions_are_found(tmp_path: Path) -> None:
    just = "def just():\n" + "    x = 1\n" * (FUNCTION - 1)
    over = "class C:\n    async def over(self):\n" + "        x = 1\n" * FUNCTION
    plant(tmp_path, {"any.py": just + over})
    [problem] = functions_too_long(tmp_path)
    assert "over has 41 lines" in problem
