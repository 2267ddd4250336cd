"""`python -m runtime.airflow_component scheduler …`: runs `airflow scheduler` so that its worker processes end with it.

Otherwise a killed scheduler would leave its idle workers behind. The process exits as soon as the command ends, because
a normal interpreter shutdown takes 20 seconds on a busy machine.

While Airflow's database does not answer, a component would end as soon as it had imported Airflow, and begin again
with the imports. All components would then be importing when the database is back. So a component imports, and waits.

Each task and each reading of a DAG file is a fork of a component, which imports what the plugins need. Libraries that
its parent has imported take it no time. Truelog's own modules are not among them, because a release may change them
while Airflow runs.
"""

import atexit
import ctypes
import os
import signal
import sys
from importlib import import_module
from importlib.util import find_spec
from threading import Event

import psycopg

from truelog.support.process import quick_imports
from truelog.support.wait import outlast

with quick_imports():
    from airflow.__main__ import main
    from airflow.configuration import conf

PR_SET_PDEATHSIG = 1
TIED = 2  # generations to tie: the executor's worker and its task, but not the processes that a task forks

FORKING = ("scheduler", "dag-processor")
LIBRARIES = ("boto3", "confluent_kafka", "pandas", "pydantic_settings", "pyiceberg.catalog.sql")

_generation = 0


def _tie() -> None:
    global _generation  # noqa: PLW0603  each process counts for itself
    _generation += 1
    if _generation <= TIED:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for_database() -> None:
    """Import a component's command, which takes seconds, and wait until Airflow's database answers."""
    command = f"airflow.cli.commands.{sys.argv[1].replace('-', '_')}_command"
    with quick_imports():
        # Other commands, such as `dags`, have modules of other names.
        for name in (command, *(LIBRARIES if sys.argv[1] in FORKING else ())):
            if find_spec(name):
                import_module(name)
    address = conf.get_mandatory_value("database", "sql_alchemy_conn").replace("postgresql+psycopg:", "postgresql:", 1)
    outlast(lambda: psycopg.connect(address, connect_timeout=5).close(), Event())


def _run() -> int:
    """Run the command and return its exit code. If the exit code is a message, Python itself prints it."""
    try:
        main()  # type: ignore[no-untyped-call]
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        return ended.code or 0
    return 0


if __name__ == "__main__":
    if sys.platform == "linux":
        os.register_at_fork(after_in_child=_tie)
    _wait_for_database()
    code = _run()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
