"""Executes a plan of one partition in the driver's JVM, without a job of Spark.

For each job, Spark describes the plan as text, serializes it, schedules a task, deserializes the plan, and reports to
its listeners. For some hundred events, this takes several times as long as the plan itself. A local task does with the
partition what a task of Spark does with it, and nothing else. Each execution begins again, as a task does. The plan
reads event files in Java, where a job would need a process of Python.

Only a local process can do this, because the driver's environment must be that of the executors. `LocalTask.java` uses
classes that Spark's other modules use, and which another release may change; `test_local_task.py` would fail then.
"""

from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from truelog.tables.staging import event_files

_SOURCE = Path(__file__).with_name("LocalTask.java")
_CLASS = "truelog.LocalTask"
_compiled: dict[Any, Any] = {}  # the class, by the JVM
_compiling = Lock()  # views begin at the same time


class LocalTask:
    """The plan of a frame, which a thread may execute again and again. The plan must remember no rows.

    No job may use the same frame: a sort in the plan keeps its buffers, which Spark cannot send to a task.
    """

    def __init__(self, frame: DataFrame) -> None:
        gateway = frame.sparkSession.sparkContext._gateway
        assert gateway is not None  # noqa: S101
        with _compiling:
            if gateway not in _compiled:
                _compiled.clear()  # a JVM that has ended
                _compiled[gateway] = _compile(gateway)
        arguments = gateway.new_array(gateway.jvm.Object, 2)
        arguments[0], arguments[1] = frame._jdf, event_files.READS
        self._task = _compiled[gateway].getConstructors()[0].newInstance(arguments)

    def rows(self, file: Path) -> Iterator[pa.RecordBatch]:
        """Execute the plan, and return its rows. They are in the file, which is replaced."""
        self._task.write(str(file))
        return _read(file)


def _compile(gateway: Any) -> Any:
    """The Java class. Spark contains the compiler, with which it compiles the code that it generates."""
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(gateway.jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE.read_text())
    return compiler.getClassLoader().loadClass(_CLASS)


def _read(file: Path) -> Iterator[pa.RecordBatch]:
    """The batches of Arrow streams that follow one another."""
    with pa.OSFile(str(file)) as source:  # not mapped: the next execution replaces the file
        while source.tell() < source.size():
            with pa.ipc.open_stream(source) as stream:
                yield from stream
