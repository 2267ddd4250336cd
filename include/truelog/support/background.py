"""Background threads, which call a function repeatedly until they are stopped."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


class Background:
    """Calls `action`, waits `pause` seconds, and repeats. After an exception, which Python prints, the thread ends.

    The thread calls `at_end` last, however it ends.
    """

    def __init__(
        self,
        name: str,
        action: Callable[[], object],
        pause: float = 0.0,
        at_end: Callable[[], object] = lambda: None,
    ) -> None:
        self._action, self._at_end = action, at_end
        self._pause = pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self, seconds: float = 5.0) -> None:
        """Stop the thread, and wait at most `seconds` for its current call to finish."""
        self._stop.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._action()
                self._stop.wait(self._pause)
        finally:
            self._at_end()


@contextmanager
def running(threads: Sequence[Background], stop_seconds: float = 5.0) -> Iterator[None]:
    """Run the threads meanwhile. At the end, wait at most `stop_seconds` per thread for its current call to finish."""
    for each in threads:
        each.start()
    yield
    for each in threads:
        each.stop(stop_seconds)
