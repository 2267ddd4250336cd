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
        self._taken: list[float] = []  # CPU seconds, since the last answer
        self._answer = 0.0
        threading.Thread(target=self._run, name="core speed", daemon=True).start()

    def begin(self) -> None:
        """A job begins: forget the measurements before it, and take its first."""
        with self._lock:
            self._taken = []
        self.measure()

    def measure(self) -> None:
        seconds = self._work()
        with self._lock:
            self._taken.append(seconds)

    def milliseconds(self) -> float:
        """The mean CPU time of the reference work since the last answer, or that answer if nothing was measured since.

        So all rows that a job returns at its end have the same speed.
        """
        with self._lock:
            if self._taken:
                self._answer, self._taken = 1_000 * sum(self._taken) / len(self._taken), []
            return self._answer

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(self._every):
            self.measure()
