"""Sends events to the OpenLineage server from a thread, so that no server holds up the work that it hears about.

An event is tried once. If the server refuses it, does not answer in time, or is so slow that the queue is full, the
event is dropped and counted. The log gets the first reason, and the number of dropped events as soon as the server
accepts events again. A run that goes on repeats what it reads and writes, so a server that was away learns it later.
"""

import logging
import queue
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from truelog.support.errors import TruelogError
from truelog.support.http_client import post_json
from truelog.support.settings import Settings

Event = dict[str, Any]

_ROOM = 1_000  # events
_PATH = "api/v1/lineage"

log = logging.getLogger("truelog.lineage")


class Sender:
    """A queue of events for one server, and the thread that sends them. The thread begins with the first event."""

    def __init__(self, url: str, key: str, seconds: float, room: int = _ROOM) -> None:
        self.sent = self.dropped = 0
        self._url, self._seconds = f"{url.rstrip('/')}/{_PATH}", seconds
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._queue: queue.Queue[Callable[[], Event]] = queue.Queue(room)
        self._lock = threading.Lock()
        self._is_failing = False
        self._thread: threading.Thread | None = None

    def send(self, make: Callable[[], Event]) -> None:
        """Put an event into the queue, or drop it if the queue is full. `make` is called in the sender's thread."""
        try:
            self._queue.put_nowait(make)
        except queue.Full:
            self._drop("the server is slower than the events come")
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lineage", daemon=True)
                self._thread.start()

    def flush(self, seconds: float) -> bool:
        """Wait until the queue is empty, but no longer than this, and return whether it is."""
        with self._queue.all_tasks_done:
            return self._queue.all_tasks_done.wait_for(lambda: self._queue.unfinished_tasks == 0, seconds)

    def _run(self) -> None:
        while True:
            make = self._queue.get()
            try:
                post_json(self._url, make(), self._headers, self._seconds)
            except Exception as error:  # the thread must outlive what any server answers
                self._drop(str(error) if isinstance(error, TruelogError) else type(error).__name__)
            else:
                self._succeeded()
            finally:
                self._queue.task_done()

    def _drop(self, reason: str) -> None:
        with self._lock:
            self.dropped += 1
            is_first, self._is_failing = not self._is_failing, True
        if is_first:
            log.warning("an event for OpenLineage was dropped: %s; further ones are only counted", reason)

    def _succeeded(self) -> None:
        with self._lock:
            self.sent += 1
            was_failing, self._is_failing = self._is_failing, False
        if was_failing:
            log.info("the OpenLineage server accepts events again; this process has dropped %d so far", self.dropped)


def sender_of(settings: Settings) -> Sender | None:
    """The sender of this process; None if no server is set."""
    if not (url := settings.openlineage_url.get_secret_value()):
        return None
    return _sender(url, settings.openlineage_api_key.get_secret_value(), settings.openlineage_answer_seconds)


def flush(settings: Settings) -> None:
    """Wait for the events of this process that are still in the queue, but no longer than the setting says."""
    sender = sender_of(settings)
    if sender is not None:
        sender.flush(settings.openlineage_end_seconds)


@cache
def _sender(url: str, key: str, seconds: float) -> Sender:
    return Sender(url, key, seconds)
