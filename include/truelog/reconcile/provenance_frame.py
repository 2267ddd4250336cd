"""Carrying: a frame whose `select` always keeps some columns, so that they come through a view's transform.

A transform ends in a select of exactly key and measures. Who wants to know which record added what gives it this
instead of a DataFrame; that it suits every view, the laws see, which run all of them by it.
"""

from typing import Any

from pyspark.sql import DataFrame


class ProvenanceFrame:
    """A DataFrame in all that a transform may do with one."""

    def __init__(self, frame: DataFrame, carried: tuple[str, ...]) -> None:
        self.frame, self.carried = frame, carried

    def select(self, *columns: Any) -> "ProvenanceFrame":
        return ProvenanceFrame(self.frame.select(*self.carried, *columns), self.carried)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.frame, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            plain = [a.frame if isinstance(a, ProvenanceFrame) else a for a in args]
            result = attribute(*plain, **kwargs)
            return ProvenanceFrame(result, self.carried) if isinstance(result, DataFrame) else result

        return call
