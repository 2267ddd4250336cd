"""Every reader of the archive refuses a catalog that was restored from a backup, by `load_newest`.

Such a catalog names earlier files, which may have people who were forgotten since the backup.
"""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.house.tree import PROJECT, modules, plant, unpermitted

CODE = ("include/*.py", "dags/*.py", "plugins/*.py", "spark_apps/*.py")

# The modules that may load a table as the catalog knows it, and why.
ALLOWED = {
    "include/truelog/archive/catalog_pointer.py": "defines load_newest and load_table",
    "include/truelog/archive/table.py": "reads positions, and loads a table that it has made",
    "include/truelog/archive/adopt.py": "moves the pointer of a table that it has adopted",
    "include/truelog/batch/base.py": "tables of bases have no pointer",
    "include/truelog/batch/partials.py": "tables of partials have no pointer",
    "include/truelog/maintenance/accept_cut.py": "reads positions",
    "include/truelog/maintenance/upkeep.py": "moves the pointer of a table that it has loaded by load_newest",
}


def loaders(root: Path, allowed: Collection[str]) -> list[str]:
    """Modules that load a table without permission, and unused permissions."""
    problem = "{} may show an earlier version of the table; call load_newest"
    found = {name: problem.format(line) for name, tree in modules(root, *CODE) for line in _loads(tree)}
    return unpermitted(found, allowed, "loads no table")


def _loads(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "load_table":
            yield node.lineno


def test_readers_require_the_newest_version() -> None:
    assert loaders(PROJECT, ALLOWED) == []


def test_a_reader_of_an_earlier_version_is_found(tmp_path: Path) -> None:
    shown = "def rows(catalog):\n    return catalog.load_table('log.page_view').scan().to_arrow()\n"
    plant(tmp_path, {"include/truelog/reports/shown.py": shown, "include/truelog/archive/table.py": "load_newest()\n"})
    assert loaders(tmp_path, {"include/truelog/archive/table.py": "a reason of the past"}) == [
        "include/truelog/reports/shown.py:2 may show an earlier version of the table; call load_newest",
        "include/truelog/archive/table.py is on the list, but loads no table",
    ]
