"""The result of one check, and how checks of a service become results when the service does not answer."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from truelog.support.errors import TruelogError
from truelog.support.settings import Settings


class Outcome(StrEnum):
    """Whether the platform can work with what was found."""

    FINE = "FINE"
    WARNING = "WARNING"  # it works, but an expected event will hurt
    FAILED = "FAILED"  # it does not work, or data can be lost or read by strangers


@dataclass(frozen=True)
class Result:
    """What a check found. `cure` is what to do about it; empty if there is nothing to do."""

    area: str
    check: str
    outcome: Outcome
    found: str
    cure: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return {**asdict(self), "outcome": str(self.outcome)}


def has_failed(results: Iterable[Result]) -> bool:
    return any(each.outcome is Outcome.FAILED for each in results)


@dataclass(frozen=True)
class Area:
    """A part of what the platform depends on. Its checks share the name of the area.

    outages: the errors by which the service says that it does not answer, or refuses.
    """

    name: str
    checks: Callable[["Area", Settings], Iterator[Result]]
    outages: tuple[type[Exception], ...] = ()
    cure: str = ""

    def examine(self, settings: Settings) -> Iterator[Result]:
        """The results. The first error ends the checks, because those after it need the same answer."""
        outages: tuple[type[Exception], ...] = (TruelogError, *self.outages)
        try:
            yield from self.checks(self, settings)
        except outages as error:
            yield self.failed("answers", f"no answer: {str(error).strip()}", self.cure)

    def fine(self, check: str, found: str) -> Result:
        return Result(self.name, check, Outcome.FINE, found)

    def warning(self, check: str, found: str, cure: str) -> Result:
        return Result(self.name, check, Outcome.WARNING, found, cure)

    def failed(self, check: str, found: str, cure: str) -> Result:
        return Result(self.name, check, Outcome.FAILED, found, cure)
