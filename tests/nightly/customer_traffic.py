"""Changes of the shop's customers, as Debezium writes them, and attempts of these customers to pay."""

import json
import random
from datetime import UTC, datetime

from tests.builders.changes import change
from truelog.log.kafka_producer import OutgoingRecord
from truelog.support import timestamps

TOPICS = ("customers", "payment")
_CUSTOMERS = 50  # so few that some fail to pay five times within ten minutes
_CITIES = ("Oslo", "Turin", "Graz", None)
_DELETED = 0.1  # share of the changes


class CustomerTraffic:
    """Each portion has one change, in the order of the source's log, and two attempts to pay."""

    def __init__(self, chosen: random.Random) -> None:
        self.random, self.lsn, self.made = chosen, 0, 0

    def portion(self) -> list[OutgoingRecord]:
        return [self._change(), self._payment(), self._payment()]

    def _change(self) -> OutgoingRecord:
        self.lsn += 8
        number = self.random.randint(1, _CUSTOMERS)
        row = {"id": number, "name": f"Customer {number}", "city": self.random.choice(_CITIES)}
        operation = "deleted" if self.random.random() < _DELETED else "updated"
        value = change(operation, row, lsn=self.lsn, at=datetime.now(UTC))
        return OutgoingRecord("customers", json.dumps({"id": number}), value)

    def _payment(self) -> OutgoingRecord:
        self.made += 1
        customer = str(self.random.randint(1, _CUSTOMERS))
        event = {
            "event_id": f"payment-{self.made}",
            "occurred_at": timestamps.to_text(datetime.now(UTC)),
            "customer_id": customer,
            "order_id": f"order-{self.made}",
            "verb": self.random.choice(("failed", "succeeded")),
            "country": self.random.choice(("NO", "IT")),
            "amount": self.random.randint(100, 10_000),
        }
        return OutgoingRecord("payment", customer, json.dumps(event).encode())
