"""DAG files and plugins, which Airflow loads every few seconds, import no data libraries.

A fresh interpreter that refuses these libraries imports the files, so the test also finds indirect imports.
"""

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
