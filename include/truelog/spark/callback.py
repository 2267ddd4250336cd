"""The port on which Spark's JVM calls Python functions, such as the function of `foreachBatch`.

PySpark opens this port without authentication, so any account of the machine could call the functions. Py4J can require
a token from its callers, but PySpark does not use this: it replaces the JVM's caller with a copy that has no token
(`Gateway.resetCallbackClient`). This module gives both ends the token.
"""

import secrets
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

# The caller's field is private to Py4J. If another release renames it, no session starts.
_FIELD = "authToken"


def require_token(spark: SparkSession) -> None:
    """Open the port, with a token that only this process and its JVM know. Idempotent."""
    gateway: Any = spark.sparkContext._gateway
    if gateway.callback_server_parameters.auth_token is not None:
        return
    token = secrets.token_hex(32)
    gateway.callback_server_parameters.auth_token = token  # from the port's first moment
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    caller = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()
    field = caller.getClass().getSuperclass().getDeclaredField(_FIELD)
    field.setAccessible(True)
    field.set(caller, token)
