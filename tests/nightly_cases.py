"""Parameters of a test: `make test` runs some of its cases, and `make nightly` the others."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def nightly_except(often: Collection[str], cases: Iterable[str]) -> list[Any]:
    """The cases as parameters for pytest. Cases that are not run often are marked `nightly`."""
    return [pytest.param(case, marks=() if case in often else pytest.mark.nightly) for case in cases]
