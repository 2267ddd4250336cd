"""`make demo-cdc`: captures a table of another database, changes it, and compares the view with the table itself."""

import logging
import sys
from uuid import uuid4

import psycopg

import runtime
from runtime import class_archive
from runtime.home import append
from truelog.capture import comparison
from truelog.capture.comparison import SourceComparison
from truelog.capture.source_table import captured_types
from truelog.cli.failure import explained
from truelog.client.client import Client
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings, default_home
from truelog.support.wait import until

_SECONDS = 600  # Airflow starts the stream
CHANGES = (
    "INSERT INTO customers (id, name, city, credit) VALUES (1, 'Ann', 'Oslo', 12.50), (2, 'Bob', 'Turin', 0) "
    "ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name",
    "UPDATE customers SET city = 'Bergen' WHERE id = 1",
    "DELETE FROM customers WHERE id = 2",
)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with runtime.exclusive(default_home()):
        settings = _switched_on()
        runtime.fetch_jars(settings)
        class_archive.make(settings, retry=False)
        runtime.up(settings)
    arguments = settings.database() | {"dbname": settings.source_database}
    with psycopg.connect(**arguments, autocommit=True) as shop:
        for statement in CHANGES:
            _say(statement)
            shop.execute(statement)
    found = equal(settings)
    _say(f"customers: {found.rows} rows, {found.verdict} to the table at {found.lsn} of its database's log")
    _say(f"a payment of customer 1, who now lives in {_paid(settings)}: `truelog query payments_enriched` shows it")
    _say("`truelog query customers --relation current` shows the rows, and `make down` stops the platform.")
    return 0


def _switched_on() -> Settings:
    """Turn capture on in the home, where every process reads it."""
    settings = runtime.set_up(default_home())
    if not settings.capture:
        append(settings.home, {"TRUELOG_CAPTURE": "true"})
    return Settings(home=settings.home)


def equal(settings: Settings) -> SourceComparison:
    """Compare the view with the table until they are equal."""
    found: list[SourceComparison] = []

    def compared() -> None:
        found.append(comparison.compare(settings, "customers", captured_types(settings)["customers"]))
        if found[-1].verdict != comparison.EQUAL:
            raise ServiceDown(found[-1].reason)

    until(compared, _SECONDS, "the view of the customers")
    return found[-1]


def _paid(settings: Settings) -> str:
    """Send a payment, and return the city that the view has for it as soon as the view has read it."""
    key = settings.producer_key.get_secret_value()
    event_id = str(uuid4())
    payment = {"type": "payment", "event_id": event_id, "customer_id": "1", "order_id": "o1", "verb": "succeeded"}
    at = settings.address("collector")
    with Client(collector=f"http://{at.host}:{at.port}", producer_key=key) as client:
        client.send(payment | {"country": "NO", "amount": 1250})
    query = "SELECT city FROM views.payments_enriched WHERE event_id = %s AND city IS NOT NULL"
    cities: list[str] = []

    def enriched() -> None:
        with connect(settings, autocommit=True) as connection:
            cities.extend(city for (city,) in connection.execute(query, (event_id,)))
        if not cities:
            raise ServiceDown("it does not have the payment yet")

    until(enriched, _SECONDS, "the view payments_enriched")
    return cities[0]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    with explained():
        sys.exit(main())
