"""The process that forks Spark's Python workers: Spark's own daemon without two costs that small tasks cannot afford.

Before each task, Spark makes Python clear its caches for `sys.path` and read the directory of every archive on the path
again; Spark's own jar alone contains thousands of classes. After each task, Python runs garbage collection over every
object that was ever imported. Together, the two costs took four fifths of the Python time in a stream with 200 events a
second. Here, Spark's own archives are removed from the path, because PySpark is installed. The modules that tasks need
are imported once, before workers are forked, and frozen, so that the garbage collector skips them.

The `--py-files` archives stay on the path, so that a host without Truelog finds it in one of these archives. YARN puts
the archives on the daemon's PYTHONPATH; on a standalone cluster, `spark.executorEnv.PYTHONPATH` must list them.
"""

import gc
import sys
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from pathlib import PurePath
from typing import Any

# A task makes an object for each record that it reads, and none of these objects is part of a cycle.
_NEW_OBJECTS = 200_000  # after so many, the garbage collector looks for cycles

_SPARK_ARCHIVES = ("spark-*.jar", "pyspark.zip", "py4j-*-src.zip")


def main() -> None:
    sys.path[:] = without_spark_archives(sys.path)
    sys.path_importer_cache.clear()
    from pyspark import daemon  # the installed package, not Spark's archive

    import_modules()
    daemon.worker = unless_unread(daemon.worker)
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    daemon.manager()  # type: ignore[no-untyped-call]


def import_modules() -> None:
    """Import the modules that define the functions of tasks. `tests/house/test_tasks.py` keeps them small."""
    from truelog.archive import file_reader  # noqa: F401
    from truelog.archive import writer as archive_writer  # noqa: F401
    from truelog.log import records  # noqa: F401
    from truelog.tables import stage  # noqa: F401


def unless_unread(worker: Callable[..., int]) -> Callable[..., int]:
    """Make a worker end without a traceback if Spark, which has ended its task, no longer reads what it writes."""

    def work(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            return 1  # the worker is not used again

    return work


def without_spark_archives(path: Iterable[str]) -> list[str]:
    """The entries of a Python path that are not archives from the Spark distribution."""
    return [entry for entry in path if not any(fnmatch(PurePath(entry).name, each) for each in _SPARK_ARCHIVES)]


if __name__ == "__main__":
    main()
