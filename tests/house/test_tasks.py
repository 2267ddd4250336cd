"""The process that forks Spark's Python workers loads no library of drivers, because every start would pay for it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.house.tree import PROJECT, plant

OF_DRIVERS = ("boto3", "botocore", "sqlalchemy", "airflow")

IMPORTER = f"""
import sys
from truelog.spark import python_daemon
python_daemon.import_modules()
print(*[name for name in {OF_DRIVERS} if name in sys.modules])
"""


def heavy(root: Path) -> list[str]:
    """The libraries of drivers that the process loads, in a fresh interpreter."""
    environment = {"PATH": os.defpath, "PYTHONPATH": str(root / "include")}
    command = [sys.executable, "-c", IMPORTER]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ended.stdout.split()


def test_tasks_load_no_libraries_of_drivers() -> None:
    assert heavy(PROJECT) == []


def test_a_planted_import_is_found(tmp_path: Path) -> None:
    planted = {
        "include/truelog/spark/python_daemon.py": "def import_modules():\n    from truelog import outer\n",
        "include/truelog/outer.py": "from truelog import inner\n",
        "include/truelog/inner.py": "from sqlalchemy import exc\n",
        "include/truelog/__init__.py": "",
    }
    assert heavy(plant(tmp_path, planted)) == ["sqlalchemy"]
