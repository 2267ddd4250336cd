"""A query about the server's sessions or locks names its own database, or the processes that it means.

`pg_stat_activity` and `pg_locks` show all databases of a server, and another Truelog may use one of them: its
applications have the same names, and its sessions the same roles.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import PROJECT, modules, plant, texts

_SHARED = re.compile(r"\b(FROM|JOIN) (pg_stat_activity|pg_locks)\b")
_OWN = re.compile(r"current_database\(\)|\(pid, backend_start\) =|\bpid = pg_backend_pid\b|pg_blocking_pids")


def queries_about_all_databases(root: Path) -> list[str]:
    return [f"{place} reads {found[2]} of all databases" for place, text in _strings(root) for found in _reads(text)]


def _reads(text: str) -> Iterator[re.Match[str]]:
    """What each statement reads of all databases."""
    for statement in text.split(";"):
        if not _OWN.search(statement):
            yield from _SHARED.finditer(statement)


def _strings(root: Path) -> Iterator[tuple[str, str]]:
    yield from texts(root, "*.sql")
    for name, tree in modules(root):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{name}:{node.lineno}", node.value


def test_each_query_names_its_database() -> None:
    assert queries_about_all_databases(PROJECT) == []


def test_a_query_about_all_databases_is_found(tmp_path: Path) -> None:
    sessions, locks = "pg_stat_activity", "pg_locks"
    ends = f"SELECT pg_terminate_backend(pid) FROM {sessions} WHERE application_name = 'stream'"
    own = f"{ends} AND datname = current_database()"
    plant(tmp_path, {"a.py": f'END = "{ends}"\nOWN = "{own}"\n', "b.sql": f"{own};\nSELECT FROM {locks};\n"})
    assert queries_about_all_databases(tmp_path) == [
        "b.sql reads pg_locks of all databases",
        "a.py:1 reads pg_stat_activity of all databases",
    ]
