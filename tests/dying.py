"""A fault in the test's own process: what runs in the block dies at a named point."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from truelog.support import faults


@contextmanager
def dying_at(point: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Require that the block reaches the point and dies there."""
    fired = folder / point
    with monkeypatch.context() as armed:
        armed.setenv("TRUELOG_FAULT_FIRED", str(fired))
        armed.setattr(faults, "_armed", f"{point}:1:raise")
        armed.setattr(faults, "_reached", 0)
        with pytest.raises(faults.FaultInjectedError):
            yield
    assert fired.exists()
