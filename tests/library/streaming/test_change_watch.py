"""The watch for changes survives every error, and an application without its watch ends."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from pyiceberg.exceptions import ServerError

from tests.deadline import deadline
from truelog.streaming import change_watch
from truelog.streaming.change_watch import BatchGate, ChangeWatch
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

NAME = "watching"
ERRORS = (
    EndpointConnectionError(endpoint_url="http://s3"),
    ClientError({"Error": {"Code": "503"}}, "GetObject"),
    ServerError("the catalog failed"),
    ServiceDown("kafka"),
    ZeroDivisionError("a defect"),
)


class Query:
    """A query that runs until it is stopped."""

    isActive = True  # noqa: N815 — Spark's name
    lastProgress = None  # noqa: N815

    def awaitTermination(self, _: float) -> bool:  # noqa: N802 — Spark's name
        return threading.Event().wait(0.02)

    def stop(self) -> None:
        self.isActive = False


@pytest.fixture
def follow(postgresql: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], str]], None]:
    """Follow a query until the topics have changed; give up, and stop the query, at the deadline."""
    monkeypatch.setattr(change_watch, "_POLL_SECONDS", 0.02)
    settings = postgresql.model_copy(update={"topic_check_seconds": 0.001})

    def follow(changed: Callable[[], str]) -> None:
        watch, query, stop = ChangeWatch(settings, NAME, changed), Query(), threading.Event()
        with ThreadPoolExecutor(1) as pool:
            following = pool.submit(watch.follow, cast(Any, query), BatchGate(), stop)
            try:
                following.result(deadline(20))
            finally:
                stop.set()
        assert not query.isActive, "the application plans again"

    return follow


@pytest.mark.parametrize("error", ERRORS, ids=[type(each).__name__ for each in ERRORS])
def test_a_change_is_found_after_any_error(follow: Callable[[Callable[[], str]], None], error: Exception) -> None:
    answers = iter([error, error])

    def changed() -> str:
        if (failure := next(answers, None)) is not None:
            raise failure
        return "a new topic"

    follow(changed)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # SystemExit, as planted
def test_an_application_whose_watch_has_died_ends(follow: Callable[[Callable[[], str]], None]) -> None:
    def changed() -> str:
        raise SystemExit

    with pytest.raises(RuntimeError, match="the thread that looks for changes has ended"):
        follow(changed)
