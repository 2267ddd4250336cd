"""A job that orders again what was sold, for the scene: its processes, and the orders that it must lead to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deadline import deadline, until
from tests.scenes.applications import Application, start
from tests.scenes.shop import Shop
from tests.scenes.traffic import in_the_log, parsed
from truelog.client.client import Client
from truelog.client.errors import Behind
from truelog.client.receipt import Receipt
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

DYING = Path(__file__).with_name("dying_job.py")
_SOLD = "SELECT product, sum(quantity)::int FROM views.cart WHERE checked_out_at IS NOT NULL GROUP BY product"
_ORDERED = "SELECT product, quantity::int FROM views.cart WHERE cart_id = %s"


def application_client(settings: Settings) -> Client:
    """The client of an application, which may wait long for a busy machine."""
    collector, api = (settings.address(name) for name in ("collector", "api"))
    return Client(
        collector=f"http://{collector.host}:{collector.port}",
        api=f"http://{api.host}:{api.port}",
        producer_key=settings.producer_key.get_secret_value(),
        reader_key=settings.reader_key.get_secret_value(),
        seconds=deadline(90),
    )


def read_with(client: Client, receipt: Receipt, view: str, **asked: Any) -> Sequence[Mapping[str, Any]]:
    """The rows of a view once it has read the events of a receipt. The client asks again while a stream starts."""
    found: list[Mapping[str, Any]] = []

    def read() -> None:
        try:
            found[:] = client.rows(view, at_least=receipt.token, wait=60, **asked).rows
        except Behind as late:
            raise ServiceDown(str(late)) from late

    until(read, 90, f"the events in {view}")
    return found


@dataclass(frozen=True)
class Restocking:
    """The job with this text, in a shop."""

    shop: Shop
    file: Path
    text: str

    def __post_init__(self) -> None:
        self.file.write_text(self.text)

    def started(self, cart: str, *arguments: str) -> Application:
        """A process of the job, whose orders are in a cart. `dying_job.py` describes the other arguments."""
        return start(self.shop.world.settings, str(DYING), str(self.file), cart, *arguments)

    def sell(self, *carts: str) -> None:
        """Check out carts with two products."""
        with application_client(self.shop.world.settings) as client:
            client.send(*(event for cart in carts for event in _sold(cart)))

    def require_all_ordered(self, cart: str) -> None:
        """Raise ServiceDown unless the cart has exactly what was sold, row for row."""
        sold, ordered = self._products(_SOLD), self._products(_ORDERED, cart)
        if not sold or ordered != sold:
            raise ServiceDown(f"{cart} has {ordered}, and {sold} was sold")

    def require_too_many_ordered(self, cart: str) -> None:
        """Raise ServiceDown unless the cart has more than was sold."""
        sold, ordered = self._products(_SOLD), self._products(_ORDERED, cart)
        if sum(ordered.values()) <= sum(sold.values()):
            raise ServiceDown(f"{cart} has {ordered}, and {sold} was sold")

    def ids_sent(self, cart: str) -> list[str]:
        """The id of each event of the cart in the log."""
        events = (parsed(value) for value in in_the_log(self.shop.world.settings, "cart_event"))
        return [each["event_id"] for each in events if each is not None and each["cart_id"] == cart]

    def _products(self, query: str, *parameters: object) -> dict[str, int]:
        return dict(self.shop.world.ask(query, *parameters))


def _sold(cart: str) -> Iterator[dict[str, Any]]:
    about = {"type": "cart_event", "cart_id": cart, "visitor_id": "ann"}
    for product, quantity in (("lamp", 2), ("sofa", 1)):
        yield about | {"verb": "added", "product": product, "quantity": quantity}
    yield about | {"verb": "checked_out"}
