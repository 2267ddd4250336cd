"""Value errors: failures of a Spark job that a record's value caused, as opposed to a lost executor or a full disk."""

from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    PySparkException,
    SparkNoSuchElementException,
    SparkRuntimeException,
    SparkUpgradeException,
)

from truelog.storage.database import storable

FAILURES = (PySparkException, Py4JJavaError)  # PySpark does not convert all of Spark's exceptions

_BY_VALUE = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    SparkNoSuchElementException,
    SparkRuntimeException,
    SparkUpgradeException,
)
_JAVA_BY_VALUE = (
    "java.lang.ArithmeticException",
    "java.lang.IllegalArgumentException",  # also of bad patterns and formats
    "java.lang.IndexOutOfBoundsException",
    "java.lang.NegativeArraySizeException",
    "java.time.DateTimeException",
)
_DATA_EXCEPTION = "22"  # the class of SQLSTATE


def is_value_error(failure: Exception) -> bool:
    """Whether a value caused the failure of a Spark job."""
    if isinstance(failure, Py4JJavaError):
        return any(map(_is_java_value_error, _causes(failure)))
    return isinstance(failure, _BY_VALUE)


def reason(failure: Exception) -> str:
    """The failure in one line."""
    if isinstance(failure, Py4JJavaError):
        by_value = next(filter(_is_java_value_error, _causes(failure)))
        return _line(by_value.toString())
    assert isinstance(failure, PySparkException)  # noqa: S101
    return f"{failure.getCondition() or type(failure).__name__}: {_line(str(failure))}"


def _causes(failure: Py4JJavaError) -> list[Any]:
    """The Java exceptions, from the outermost to the root cause."""
    causes, each = [], failure.java_exception
    while each is not None:
        causes.append(each)
        each = each.getCause()
    return causes


def _is_java_value_error(exception: Any) -> bool:
    gateway = SparkContext._gateway
    if any(is_instance_of(gateway, exception, name) for name in _JAVA_BY_VALUE):
        return True
    is_sparks = is_instance_of(gateway, exception, "org.apache.spark.SparkThrowable")
    return is_sparks and str(exception.getSqlState() or "").startswith(_DATA_EXCEPTION)


def _line(text: str) -> str:
    return storable((text.splitlines() or [""])[0])
