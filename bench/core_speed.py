"""How fast the cores are during a job: those of a virtual machine can become twice as slow without other load."""

import threading
from collections.abc import Callable

from tests.plugins.cost_record import reference_work

_EVERY = 10.0  # seconds; a measurement takes about 20 ms of one core


class CoreSpeed:
    """Measures the reference work in a thread, until the process ends."""

    def __init__(self, every: float = _EVERY, work: Callable[[], float] = reference_work) -> None:
        self._every, self._work = every, work
        self._lock = threading.Lock()
        self._taken: list[float] = []  # CPU seconds, since the last call of `milliseconds`
        threading.Thread(target=self._run, name="core speed", daemon=True).start()

    def measure(self) -> None:
        seconds = self._work()
        with self._lock:
            self._taken.append(seconds)

    def milliseconds(self) -> float:
        """The mean CPU time of the reference work since the last call, with one measurement at least."""
        self.measure()
        with self._lock:
            taken, self._taken = self._taken, []
        return 1_000 * sum(taken) / len(taken)

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(self._every):
            self.measure()
