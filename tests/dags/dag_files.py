"""Loads DAG files as Airflow's dag-processor does."""

import faulthandler
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag


def load_dags(path: Path) -> "DagBag":
    """The DAGs of a folder or a file.

    Airflow then handles a segmentation fault in Python, which repeats the fault for ever. A test process has to end.
    """
    from airflow.dag_processing.dagbag import DagBag

    loaded = DagBag(dag_folder=path)
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    faulthandler.enable(sys.__stderr__ or sys.stderr)
    return loaded
