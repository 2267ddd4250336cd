"""Compiled views: what their module imports."""

import subprocess
import sys


def test_compiling_a_view_imports_no_database_driver() -> None:
    code = "import sys, truelog.tables.compiled_view; sys.exit('psycopg' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
