"""What rules may name: the entities of each event type, and its columns. `docs/patterns.md` lists them."""

from truelog.patterns.catalogue import EventSource

# An entity's events of six times this long are searched at once: a symbol may have 10,000 prices in an hour.
LONGEST = {
    "customer": "31 days",
    "machine": "2 hours",
    "order": "31 days",
    "sensor": "2 hours",
    "symbol": "10 minutes",
}

SOURCES = {
    "machine_state": EventSource(
        entities={"machine": "machine_id"},
        columns={"verb": "text"},
        known={"verb": ("started", "stopped")},
        longest=LONGEST,
    ),
    "payment": EventSource(
        entities={"customer": "customer_id", "order": "order_id"},
        columns={"order_id": "text", "verb": "text", "country": "text", "amount": "number"},
        known={"verb": ("failed", "succeeded")},
        longest=LONGEST,
    ),
    "price": EventSource(entities={"symbol": "symbol"}, columns={"price": "number"}, longest=LONGEST),
    "reading": EventSource(
        entities={"sensor": "sensor_id", "machine": "machine_id"},
        columns={"sensor_id": "text", "measured": "number", "lowest": "number", "highest": "number"},
        longest=LONGEST,
    ),
    "shipment": EventSource(
        entities={"order": "order_id"},
        columns={"verb": "text"},
        known={"verb": ("packed", "shipped", "delivered")},
        longest=LONGEST,
    ),
}
