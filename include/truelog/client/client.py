"""The synchronous client.

with Client(collector="http://127.0.0.1:18080", api="http://127.0.0.1:18083", producer_key=…, reader_key=…) as client:
    receipt = client.send({"type": "page_view", "url": "https://shop.example/", …})
    page = client.rows("page_views", where=["host=shop.example"], at_least=receipt.token)
"""

from collections.abc import Generator, Iterator, Mapping
from threading import Event as Stop
from types import TracebackType
from typing import Any, Self

import httpx

from truelog.client import exchange
from truelog.client.exchange import UNANSWERED, Addresses, Ask, Event, Retries
from truelog.client.page import Page
from truelog.client.receipt import Receipt
from truelog.client.subscription import subscribing
from truelog.client.update import Update


class Client:
    """Sends events and reads views. Threads may share a client."""

    def __init__(
        self,
        *,
        collector: str = "",
        producer_key: str = "",
        api: str = "",
        reader_key: str = "",
        seconds: float = 30.0,
    ) -> None:
        """`seconds` is how long a request is repeated while a service does not answer or is too busy."""
        self._at = Addresses(collector.rstrip("/"), producer_key, api.rstrip("/"), reader_key)
        self._seconds = seconds
        self._http = httpx.Client(timeout=seconds, follow_redirects=False, limits=exchange.LIMITS)
        self._stopped = Stop()

    def send(self, *events: Event, traceparent: str = "") -> Receipt:
        """Store events in the log, and return where they are.

        `traceparent` is the trace of the caller (W3C Trace Context), which becomes a header of each record.

        Raises:
            EventsRefused: some events are dead letters. The others are in the log.
            Refused: the collector refused all of them. Nothing was stored.
            Unavailable: the collector did not answer in time.
        """
        return exchange.receipt(self._ask(exchange.sending(self._at, events, traceparent)))

    def rows(self, view: str, relation: str = "", **asked: Any) -> Page:
        """Rows of a view, or of a further relation of it. The parameters are those of `GET /views/{view}/rows`.

        With `as_of`, the client waits until a job has rebuilt the rows: for ten minutes, or for its own time limit.

        Raises:
            Refused: the API refused the request; `Behind` if the view has not reached `at_least` in time.
            NoToken: `at_least` is None, as the token of a receipt may be.
            Unavailable: the API did not answer in time.
        """
        return exchange.page(self._ask(exchange.reading(self._at, view, relation, asked)))

    def walk(self, view: str, **asked: Any) -> Iterator[Mapping[str, Any]]:
        """All rows of one state of a view, page by page.

        Raises:
            Moved: the view has changed during the walk. With `moving=True`, the walk goes on.
        """
        page = self.rows(view, **asked)
        yield from page.rows
        while page.next:
            page = self.rows(view, **asked | {"cursor": page.next})
            yield from page.rows

    def subscribe(self, view: str, **asked: Any) -> Generator[Update, None, None]:
        """All rows of a view that publishes its changes, and then each change, once and in order, without an end.

        The parameters are those of `GET /views/{view}/changes`. The client comes back if a connection ends.

        Raises:
            Refused: the API refused the request.
            Unavailable: the API did not answer in time.
        """
        subscription = subscribing(self._at, view, asked, self._seconds)
        while not self._stopped.is_set():
            try:
                with self._http.stream(**subscription.arguments) as answer:
                    pause = subscription.pause_after(answer)
                    if pause is None:
                        _read_refusal(answer)
                        for data in answer.iter_bytes():
                            yield from subscription.updates(data)
                        pause = subscription.pause_after_end()
            except UNANSWERED as error:
                pause = subscription.pause_after(error)
            self._stopped.wait(pause)

    def scoped_token(self, view: str, key: Mapping[str, str], relation: str = "", seconds: int = 300) -> str:
        """A token that a browser may hold: it permits the rows in which the columns have these values."""
        asked = exchange.exchanging(self._at, view, relation, key, seconds)
        return str(exchange.answered(self._ask(asked))["token"])

    def close(self) -> None:
        """End the waits for a further attempt, and close the connections."""
        self._stopped.set()
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, ask: Ask) -> httpx.Response:
        retries = Retries(self._seconds)
        while True:
            outcome = self._attempt(ask)
            pause = retries.pause_after(outcome)
            if pause is None:
                assert isinstance(outcome, httpx.Response)  # noqa: S101
                return outcome
            self._stopped.wait(pause)

    def _attempt(self, ask: Ask) -> httpx.Response | httpx.TransportError:
        try:
            return self._http.request(**ask.arguments)
        except UNANSWERED as error:
            return error


def _read_refusal(answer: httpx.Response) -> None:
    """Raise the refusal of a stream."""
    if answer.status_code != 200:
        answer.read()
        exchange.answered(answer)
