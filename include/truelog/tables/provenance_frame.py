"""A DataFrame wrapper whose `select` always keeps some columns, so that they survive a view's transform.

A transform ends in a `select` of exactly the key and the measures. To find out what each record adds, pass this wrapper
to the transform instead of a DataFrame. A Group keeps the coordinates of its inputs in this way, and the law tests the
case of each record.
"""

from typing import Any

from pyspark.sql import DataFrame


class ProvenanceFrame:
    """Behaves like a DataFrame in every operation that a transform may use."""

    def __init__(self, frame: Any, carried: tuple[str, ...]) -> None:
        self.frame, self.carried = frame, carried

    def select(self, *columns: Any) -> "ProvenanceFrame":
        return ProvenanceFrame(self.frame.select(*self.carried, *columns), self.carried)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.frame, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            unwrapped = [a.frame if isinstance(a, ProvenanceFrame) else a for a in args]
            result = attribute(*unwrapped, **kwargs)
            is_frame = isinstance(result, DataFrame | ProvenanceFrame)
            return ProvenanceFrame(result, self.carried) if is_frame else result

        return call
