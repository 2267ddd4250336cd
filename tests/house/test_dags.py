"""DAG files and plugins, which Airflow loads every few seconds, import no data libraries, and only names that exist.

A fresh interpreter that refuses these libraries imports the files, so the test also finds indirect imports. Imports
within functions are read from the syntax trees: Airflow performs them in a task, and mypy does not check these files.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import runtime
from tests.house.tree import PROJECT, files, plant

HEAVY = ("pyspark", "pandas", "great_expectations")

IMPORTER = f"""
import importlib.util, sys, traceback

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY}:
            raise ImportError(f"{{name}} must not be imported here", name=name)

sys.meta_path.insert(0, Refuse())
report = open(sys.argv[1], "w")
for number, path in enumerate(sys.argv[2:]):
    spec = importlib.util.spec_from_file_location(f"light_{{number}}", path)
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-2 if isinstance(error, ImportError) else -1]
        report.write(f"{{path}}: {{error}} (imported by {{place.filename}}:{{place.lineno}})\\n")
"""


def not_light(root: Path, home: Path) -> list[str]:
    """The DAG files and plugins that need a heavy library, each with the module that imports the library."""
    paths = [str(path) for path in files(root, "dags/*.py", "plugins/*.py")]
    places = os.pathsep.join(str(root / folder) for folder in (".", "include", "dags", "plugins"))
    environment = {"PATH": os.defpath, "PYTHONPATH": places, "AIRFLOW_HOME": str(home), "TRUELOG_HOME": str(home)}
    report = home / "report"
    words = [sys.executable, "-c", IMPORTER, str(report), *paths]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    return report.read_text().splitlines() + ([] if ended.returncode == 0 else [ended.stderr])


def test_dag_files_are_light(tmp_path: Path) -> None:
    runtime.set_up(tmp_path, random_ports=True)  # the files read the settings
    assert not_light(PROJECT, tmp_path) == []


def test_planted_heavy_imports_are_found(tmp_path: Path) -> None:
    planted = {
        "dags/light.py": "import json\nfrom helper import name\ndef task():\n    import pandas\n",
        "dags/direct.py": "import pyspark.sql\n",
        "dags/through.py": "import outer\n",
        "plugins/broken.py": "1 / 0\n",
        "include/helper.py": "name = 'light'\n",
        "include/outer.py": "import inner\n",
        "include/inner.py": "from great_expectations import checkpoint\n",
    }
    seen = not_light(plant(tmp_path, planted), tmp_path)
    named = [(Path(line.partition(":")[0]).name, line.rpartition("/")[2].rstrip(")")) for line in seen]
    assert named == [("direct.py", "direct.py:1"), ("through.py", "inner.py:1"), ("broken.py", "broken.py:1")]


def without_name(root: Path) -> list[str]:
    """The imports of DAG files and plugins, also within functions, whose name the module does not have."""
    found = []
    for file in files(root, "dags/*.py", "plugins/*.py"):
        imports = (each for each in ast.walk(ast.parse(file.read_text())) if isinstance(each, ast.ImportFrom))
        for each in imports:
            module = root / "include" / (each.module or "").replace(".", "/")
            if (path := _source(module)) is not None:
                names = _names(path) | {other.stem for other in module.glob("*")}
                missing = sorted({alias.name for alias in each.names} - names)
                found += [f"{file.relative_to(root)}:{each.lineno}: {path.stem} has no {name}" for name in missing]
    return found


def _source(module: Path) -> Path | None:
    return next((each for each in (module.with_suffix(".py"), module / "__init__.py") if each.is_file()), None)


def _names(path: Path) -> set[str]:
    """The names that a module defines or imports, at whatever depth, and its strings, such as those of `__all__`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def test_each_imported_name_exists() -> None:
    assert without_name(PROJECT) == []


def test_a_planted_import_of_a_name_that_has_moved_is_found(tmp_path: Path) -> None:
    planted = {
        "include/helper/__init__.py": "",
        "include/helper/early.py": "LATE = 1\n\ndef begin():\n    pass\n",
        "plugins/job.py": "from helper import early\n\ndef task():\n    from helper.early import LATE, begin, gone\n",
    }
    root = plant(tmp_path, planted)
    assert without_name(root) == ["plugins/job.py:4: early has no gone"]
