"""The process that forks Spark's Python workers: Spark's own daemon without two costs that small tasks cannot bear.

Before each task, Spark has Python forget what it knows of `sys.path` and reads the directory of every archive on it
again; its own jar alone holds thousands of classes. After each task, Python collects garbage among every object that
was ever imported. Together this took four fifths of the Python time of a stream of 200 events a second. Here Spark's
own archives leave the path, since PySpark is installed. What tasks need is imported once, before workers are forked,
and frozen: the collector skips it.

The archives of `--py-files` stay, so that a host without Truelog finds it in one of them. YARN puts them on the
daemon's PYTHONPATH; on a standalone cluster `spark.executorEnv.PYTHONPATH` must name them.
"""

import gc
import sys
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import PurePath

_SPARK_ARCHIVES = ("spark-*.jar", "pyspark.zip", "py4j-*-src.zip")


def main() -> None:
    sys.path[:] = without_spark_archives(sys.path)
    sys.path_importer_cache.clear()
    from pyspark import daemon  # the installed package, not Spark's archive

    from truelog.archive import archive_writer, catalogless_reader  # noqa: F401
    from truelog.kernel import stage  # noqa: F401
    from truelog.log import records  # noqa: F401

    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]


def without_spark_archives(path: Iterable[str]) -> list[str]:
    """The entries of a Python path that are not archives of Spark's distribution."""
    return [entry for entry in path if not any(fnmatch(PurePath(entry).name, each) for each in _SPARK_ARCHIVES)]


if __name__ == "__main__":
    main()
