"""What rules may name: the entities of each event type, and its columns. `docs/patterns.md` lists them."""

from truelog.patterns.catalogue import EventSource

SOURCES = {
    "machine_state": EventSource(
        entities={"machine": "machine_id"}, columns={"verb": "text"}, known={"verb": ("started", "stopped")}
    ),
    "payment": EventSource(
        entities={"customer": "customer_id", "order": "order_id"},
        columns={"order_id": "text", "verb": "text", "country": "text", "amount": "number"},
        known={"verb": ("failed", "succeeded")},
    ),
    "price": EventSource(entities={"symbol": "symbol"}, columns={"price": "number"}),
    "reading": EventSource(
        entities={"sensor": "sensor_id", "machine": "machine_id"},
        columns={"sensor_id": "text", "measured": "number", "lowest": "number", "highest": "number"},
    ),
    "shipment": EventSource(
        entities={"order": "order_id"}, columns={"verb": "text"}, known={"verb": ("packed", "shipped", "delivered")}
    ),
}
