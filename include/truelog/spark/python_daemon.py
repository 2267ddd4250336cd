"""The process that forks Spark's Python workers: Spark's own, but for two costs that small tasks cannot bear.

Before each task a worker has Python forget what it knows of its path, and Spark puts archives on that path, its own
jar of thousands of classes among them, whose directories are then read anew; after each task it collects garbage among
all that was ever imported. Together that was four fifths of what Python did in a stream of 200 events a second. Here
no archive is on the path, and what tasks need is imported once, before a worker is forked, and is no garbage.
"""

import gc
import sys


def main() -> None:
    sys.path[:] = [place for place in sys.path if not place.endswith((".jar", ".zip"))]
    sys.path_importer_cache.clear()
    from pyspark import daemon  # from where it is installed, no longer from Spark's archive

    from truelog.archive import archive_writer, catalogless_reader  # noqa: F401
    from truelog.kernel import stage  # noqa: F401
    from truelog.log import records  # noqa: F401

    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
